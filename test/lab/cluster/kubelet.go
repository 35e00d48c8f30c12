package cluster

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"
)

// RunPods stands in for scheduler and kubelet in namespaces whose name has the
// prefix: pods are bound, given an address of each family and said to be
// running and ready; deleted ones go at once. Nothing runs in them. It returns
// when ctx ends, with what went wrong.
func (c *Cluster) RunPods(ctx context.Context, prefix string) error {
	var mu sync.Mutex
	var failed error
	given := 0
	handle := func(obj any) {
		mu.Lock()
		defer mu.Unlock()
		pod, ok := obj.(*corev1.Pod)
		if !ok || !strings.HasPrefix(pod.Namespace, prefix) {
			return
		}
		if err := c.runPod(ctx, pod, &given); err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) && ctx.Err() == nil {
			failed = fmt.Errorf("run pod %s/%s in %s: %w", pod.Namespace, pod.Name, c.Name, err)
		}
	}
	factory := informers.NewSharedInformerFactory(c.Client, 0)
	if _, err := factory.Core().V1().Pods().Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: handle, UpdateFunc: func(_, obj any) { handle(obj) },
	}); err != nil {
		return err
	}
	factory.StartWithContext(ctx)
	<-ctx.Done()
	factory.Shutdown()
	mu.Lock()
	defer mu.Unlock()
	return failed
}

func (c *Cluster) runPod(ctx context.Context, pod *corev1.Pod, given *int) error {
	pods := c.Client.CoreV1().Pods(pod.Namespace)
	switch {
	case pod.DeletionTimestamp != nil:
		return pods.Delete(ctx, pod.Name, *metav1.NewDeleteOptions(0))
	case pod.Spec.NodeName == "":
		return pods.Bind(ctx, &corev1.Binding{
			ObjectMeta: metav1.ObjectMeta{Name: pod.Name, Namespace: pod.Namespace, UID: pod.UID},
			Target:     corev1.ObjectReference{Kind: "Node", Name: c.nodeName()},
		}, metav1.CreateOptions{})
	case pod.Status.Phase == corev1.PodRunning:
		return nil
	}
	*given++
	four, six := fmt.Sprintf("10."+octet+".%d.%d", 200+c.number, *given%250+2), fmt.Sprintf("fd00:213:%d::%x", c.number, *given+1)
	patch, err := json.Marshal(map[string]any{"status": corev1.PodStatus{
		Phase: corev1.PodRunning, PodIP: four, PodIPs: []corev1.PodIP{{IP: four}, {IP: six}}, HostIP: nodeIP(c.number),
		Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}},
	}})
	if err != nil {
		return err
	}
	_, err = pods.Patch(ctx, pod.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
	return err
}
