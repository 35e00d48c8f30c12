package servicesync

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"syscall"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/xbernetes/xbernetes/bench/measure"
)

// firstAnswers has a pod of the first cluster come and go, and measures each
// time how long until a caller in the other is answered.
func (s *bed) firstAnswers(ctx context.Context) ([]time.Duration, error) {
	pod, err := s.b.AddPod(ctx, namespace, "answers", nil) // where it runs is nothing to the path
	if err != nil {
		return nil, err
	}
	if _, err := createSliced(ctx, s.a.Client, "probe", 0, nil); err != nil {
		return nil, err
	}
	caller, err := s.b.NewCaller("probe."+namespace+".svc.cluster.local", 80)
	if err != nil {
		return nil, err
	}
	// Until kube-proxy knows of a Service, calls of it get no answer at all, and are
	// tried again after a second: it is a change of endpoints that is measured.
	if err := measure.WaitLong(ctx, "requests are refused", func() error {
		if _, err := caller.Get(ctx); !errors.Is(err, syscall.ECONNREFUSED) {
			return fmt.Errorf("they are not: %w", err)
		}
		return nil
	}); err != nil {
		return nil, err
	}
	var took []time.Duration
	for range firstAnswers {
		begun := time.Now()
		if err := s.setProbe(ctx, benchSlice("probe", 1, func(int) string { return pod.IP })); err != nil {
			return took, err
		}
		if err := measure.WaitLong(ctx, "a request is answered", func() error { _, err := caller.Get(ctx); return err }); err != nil {
			return took, err
		}
		took = append(took, time.Since(begun))
		if err := s.setProbe(ctx, benchSlice("probe", 0, nil)); err != nil {
			return took, err
		}
		if err := measure.WaitLong(ctx, "requests fail again", func() error {
			if _, err := caller.Get(ctx); err == nil {
				return fmt.Errorf("they are answered")
			}
			return nil
		}); err != nil {
			return took, err
		}
	}
	return took, nil
}

func (s *bed) setProbe(ctx context.Context, want *discoveryv1.EndpointSlice) error {
	endpoints, err := json.Marshal(want.Endpoints)
	if err != nil {
		return err
	}
	if want.Endpoints == nil {
		endpoints = []byte("[]")
	}
	patch := fmt.Appendf(nil, `{"endpoints":%s}`, endpoints)
	_, err = s.a.Client.DiscoveryV1().EndpointSlices(namespace).Patch(ctx, want.Name, types.MergePatchType, patch, metav1.PatchOptions{})
	return err
}
