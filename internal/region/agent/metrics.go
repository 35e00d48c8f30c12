package agent

import (
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/xbernetes/xbernetes/api/region/v1alpha1"
	"github.com/xbernetes/xbernetes/internal/region/agent/projection"
	"github.com/xbernetes/xbernetes/internal/region/agent/views"
)

// metrics are an agent's, whether it is elected or not. Their labels are kinds and outcomes: no
// name, message or reason is one, so that the number of series is fixed.
type metrics struct {
	leads  atomic.Pointer[views.Views] // what the elected agent sees; nil: another one works, or none
	passes *prometheus.CounterVec
}

var (
	leadingDesc = prometheus.NewDesc("xb_region_agent_leading", "1 while this agent is the elected one of its region.", nil, nil)
	readyDesc   = prometheus.NewDesc("xb_region_agent_objects", "Objects of the region by kind and by their condition Ready: True, False, or Unknown if they have none. The elected agent alone knows them.", []string{"kind", "ready"}, nil)
)

func newMetrics(registry prometheus.Registerer) *metrics {
	m := &metrics{passes: prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "xb_region_agent_passes_total",
		Help: "Times that a name was worked on, by kind and outcome. waiting: something is being removed, or somebody else wrote first.",
	}, []string{"kind", "outcome"})}
	for _, kind := range []string{projection.KindAccount, projection.KindServiceCluster, projection.KindAssignment, projection.KindEntry, projection.KindRegion} {
		for _, outcome := range []string{"done", "waiting", "failed"} {
			m.passes.WithLabelValues(kind, outcome)
		}
	}
	registry.MustRegister(m, m.passes)
	return m
}

// lead shows what the elected agent sees until the function that it returns is called.
func (m *metrics) lead(v *views.Views) (end func()) {
	m.leads.Store(v)
	return func() { m.leads.Store(nil) }
}

// worked counts a pass. Keys of claims can have any kind; what follows from no kind is not counted.
func (m *metrics) worked(kind string, err error) {
	switch kind {
	case projection.KindAccount, projection.KindServiceCluster, projection.KindAssignment, projection.KindEntry, projection.KindRegion:
	default:
		return
	}
	outcome := "done"
	switch {
	case projection.IsWaiting(err):
		outcome = "waiting"
	case err != nil:
		outcome = "failed"
	}
	m.passes.WithLabelValues(kind, outcome).Inc()
}

// Describe implements prometheus.Collector.
func (m *metrics) Describe(to chan<- *prometheus.Desc) { to <- leadingDesc; to <- readyDesc }

// Collect implements prometheus.Collector.
func (m *metrics) Collect(to chan<- prometheus.Metric) {
	v := m.leads.Load()
	if v == nil {
		to <- prometheus.MustNewConstMetric(leadingDesc, prometheus.GaugeValue, 0)
		return
	}
	to <- prometheus.MustNewConstMetric(leadingDesc, prometheus.GaugeValue, 1)
	for kind, objects := range v.Objects() {
		count := map[metav1.ConditionStatus]int{}
		for _, o := range objects {
			count[ready(o)]++
		}
		for _, is := range []metav1.ConditionStatus{metav1.ConditionTrue, metav1.ConditionFalse, metav1.ConditionUnknown} {
			to <- prometheus.MustNewConstMetric(readyDesc, prometheus.GaugeValue, float64(count[is]), kind, string(is))
		}
	}
}

// ready is an object's condition Ready.
func ready(o any) metav1.ConditionStatus {
	var all []metav1.Condition
	switch o := o.(type) {
	case *v1alpha1.Account:
		all = o.Status.Conditions
	case *v1alpha1.ServiceCluster:
		all = o.Status.Conditions
	case *v1alpha1.ServiceClusterAssignment:
		all = o.Status.Conditions
	case *v1alpha1.CatalogEntry:
		all = o.Status.Conditions
	}
	switch c := meta.FindStatusCondition(all, v1alpha1.ConditionReady); {
	case c == nil:
		return metav1.ConditionUnknown
	case c.Status == metav1.ConditionTrue:
		return metav1.ConditionTrue
	}
	return metav1.ConditionFalse
}
