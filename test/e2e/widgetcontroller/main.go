// Command widgetcontroller is an ordinary controller-runtime program: for each
// Widget it keeps a ConfigMap that the Widget owns, reports in the status, and
// gives up an imagined outside resource, under a finalizer, before a Widget
// goes. Of several, one leads.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
)

const finalizer = "example.xbernetes.dev/release"

var widgetKind = schema.GroupVersionKind{Group: "example.xbernetes.dev", Version: "v1", Kind: "Widget"}

func main() {
	name := flag.String("name", "one", "name of this process, for the status of what it makes")
	flag.Parse()
	ctrl.SetLogger(zap.New())
	if err := run(*name); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(name string) error {
	lease, renew, retry := 8*time.Second, 6*time.Second, time.Second
	mgr, err := ctrl.NewManager(ctrl.GetConfigOrDie(), ctrl.Options{
		Metrics:                 metricsserver.Options{BindAddress: "0"},
		LeaderElection:          true,
		LeaderElectionID:        "widgets.example.xbernetes.dev",
		LeaderElectionNamespace: "default",
		LeaseDuration:           &lease, RenewDeadline: &renew, RetryPeriod: &retry,
	})
	if err != nil {
		return err
	}
	widget := &unstructured.Unstructured{}
	widget.SetGroupVersionKind(widgetKind)
	err = ctrl.NewControllerManagedBy(mgr).For(widget).Owns(&corev1.ConfigMap{}).
		Complete(&reconciler{Client: mgr.GetClient(), name: name})
	if err != nil {
		return err
	}
	return mgr.Start(ctrl.SetupSignalHandler())
}

type reconciler struct {
	client.Client
	name string
}

// Reconcile brings one widget's ConfigMap and status up to date.
func (r *reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	widget := &unstructured.Unstructured{}
	widget.SetGroupVersionKind(widgetKind)
	if err := r.Get(ctx, req.NamespacedName, widget); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if widget.GetDeletionTimestamp() != nil {
		return ctrl.Result{}, r.release(ctx, widget)
	}
	if controllerutil.AddFinalizer(widget, finalizer) {
		if err := r.Update(ctx, widget); err != nil {
			return ctrl.Result{}, err
		}
	}
	size, _, err := unstructured.NestedInt64(widget.Object, "spec", "size")
	if err != nil {
		return ctrl.Result{}, err
	}
	made := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: widget.GetNamespace(), Name: widget.GetName()}}
	_, err = controllerutil.CreateOrUpdate(ctx, r.Client, made, func() error {
		made.Data = map[string]string{"size": strconv.FormatInt(size, 10)}
		return controllerutil.SetControllerReference(widget, made, r.Scheme())
	})
	if err != nil {
		return ctrl.Result{}, err
	}
	return ctrl.Result{}, r.report(ctx, widget, size)
}

// report writes the status, if it would change.
func (r *reconciler) report(ctx context.Context, widget *unstructured.Unstructured, size int64) error {
	now, _, _ := unstructured.NestedMap(widget.Object, "status")
	if now["size"] == size && now["phase"] == "Made" {
		return nil
	}
	before := widget.DeepCopy()
	err := unstructured.SetNestedMap(widget.Object, map[string]any{
		"size": size, "phase": "Made", "owner": r.name,
		"conditions": []any{map[string]any{
			"type": "Ready", "status": "True", "reason": "Made", "message": "the widget is made",
			"observedGeneration": widget.GetGeneration(), "lastTransitionTime": time.Now().UTC().Format(time.RFC3339),
		}},
	}, "status")
	if err != nil {
		return err
	}
	return r.Status().Patch(ctx, widget, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
}

// release notes in a ConfigMap that nobody owns what was given up, then lets go.
func (r *reconciler) release(ctx context.Context, widget *unstructured.Unstructured) error {
	if !controllerutil.ContainsFinalizer(widget, finalizer) {
		return nil
	}
	note := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: widget.GetNamespace(), Name: "released-" + widget.GetName()},
		Data:       map[string]string{"uid": string(widget.GetUID()), "by": r.name},
	}
	if err := r.Create(ctx, note); err != nil && !apierrors.IsAlreadyExists(err) {
		return err
	}
	controllerutil.RemoveFinalizer(widget, finalizer)
	return client.IgnoreNotFound(r.Update(ctx, widget))
}
