// Command controller is a controller-runtime program as others write them: for
// every widget it keeps a ConfigMap, which may be at another server. It knows
// nothing of a gateway.
package main

import (
	"context"
	"fmt"
	"os"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"
)

const finalizer = "example.xbernetes.dev/configmap"

var widgets = schema.GroupVersionKind{Group: "example.xbernetes.dev", Version: "v1", Kind: "Widget"}

func main() {
	ctrl.SetLogger(zap.New())
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run() error {
	mgr, err := ctrl.NewManager(ctrl.GetConfigOrDie(), ctrl.Options{
		Metrics:                 server.Options{BindAddress: "0"},
		LeaderElection:          true,
		LeaderElectionID:        "controller.example.xbernetes.dev",
		LeaderElectionNamespace: "default",
	})
	if err != nil {
		return err
	}
	widget := &unstructured.Unstructured{}
	widget.SetGroupVersionKind(widgets)
	if err := ctrl.NewControllerManagedBy(mgr).For(widget).Complete(&reconciler{mgr.GetClient()}); err != nil {
		return err
	}
	return mgr.Start(ctrl.SetupSignalHandler())
}

type reconciler struct{ client.Client }

func (r *reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	widget := &unstructured.Unstructured{}
	widget.SetGroupVersionKind(widgets)
	if err := r.Get(ctx, req.NamespacedName, widget); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	configMap := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: req.Namespace, Name: req.Name}}
	if !widget.GetDeletionTimestamp().IsZero() {
		if err := r.Delete(ctx, configMap); err != nil && !apierrors.IsNotFound(err) {
			return ctrl.Result{}, err
		}
		controllerutil.RemoveFinalizer(widget, finalizer)
		return ctrl.Result{}, r.Update(ctx, widget)
	}
	if controllerutil.AddFinalizer(widget, finalizer) {
		return ctrl.Result{}, r.Update(ctx, widget)
	}
	size, _, err := unstructured.NestedInt64(widget.Object, "spec", "size")
	if err != nil {
		return ctrl.Result{}, err
	}
	if _, err := controllerutil.CreateOrUpdate(ctx, r.Client, configMap, func() error {
		configMap.Data = map[string]string{"size": strconv.FormatInt(size, 10)}
		return nil
	}); err != nil {
		return ctrl.Result{}, err
	}
	if have, _, _ := unstructured.NestedInt64(widget.Object, "status", "size"); have == size {
		return ctrl.Result{}, nil
	}
	if err := unstructured.SetNestedField(widget.Object, size, "status", "size"); err != nil {
		return ctrl.Result{}, err
	}
	return ctrl.Result{}, r.Status().Update(ctx, widget)
}
