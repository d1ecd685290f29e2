// A controller with a leader election, a second watch and a predicate. It reconciles only while its process leads.
package main

import (
	"context"
	"fmt"
	"net/http"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/meta/testrestmapper"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	source "k8s.io/client-go/tools/cache/testing"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	metrics "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
)

type reconciler struct {
	client.Client // reads from the cache of the manager
	reconciled    chan struct{}
}

func (r *reconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	var node corev1.Node
	if err := r.Get(ctx, request.NamespacedName, &node); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	var limits corev1.ConfigMap
	pods, err := "110", r.Get(ctx, client.ObjectKey{Namespace: "default", Name: node.Name}, &limits)
	if err == nil {
		pods = limits.Data["pods"]
	} else if client.IgnoreNotFound(err) != nil {
		return ctrl.Result{}, err
	}
	fmt.Printf("%s: at most %s pods\n", node.Name, pods)
	r.reconciled <- struct{}{}
	return ctrl.Result{RequeueAfter: time.Hour}, nil
}

func nodeOf(_ context.Context, limits client.Object) []ctrl.Request {
	return []ctrl.Request{{NamespacedName: client.ObjectKey{Name: limits.GetName()}}}
}

// newManager returns a manager that needs no API server: its caches read from two fake sources.
func newManager(nodes, limits toolscache.ListerWatcher, lease resourcelock.Interface) (ctrl.Manager, error) {
	newInformer := func(_ toolscache.ListerWatcher, object runtime.Object, resync time.Duration,
		indexers toolscache.Indexers) toolscache.SharedIndexInformer {
		if _, ok := object.(*corev1.Node); ok {
			return toolscache.NewSharedIndexInformer(nodes, object, resync, indexers)
		}
		return toolscache.NewSharedIndexInformer(limits, object, resync, indexers)
	}
	return ctrl.NewManager(&rest.Config{}, ctrl.Options{
		Cache: cache.Options{NewInformer: newInformer},
		MapperProvider: func(*rest.Config, *http.Client) (meta.RESTMapper, error) {
			return testrestmapper.TestOnlyStaticRESTMapper(scheme.Scheme), nil
		},
		Metrics:                             metrics.Options{BindAddress: "0"},
		LeaderElection:                      true,
		LeaderElectionReleaseOnCancel:       true,
		LeaderElectionResourceLockInterface: lease,
	})
}

func main() {
	nodes, limits := source.NewFakeControllerSource(), source.NewFakeControllerSource()
	nodes.Add(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-1"}})

	leases := fake.NewClientset().CoordinationV1()
	manager, err := newManager(nodes, limits, &resourcelock.LeaseLock{
		LeaseMeta:  metav1.ObjectMeta{Namespace: "default", Name: "nodes"},
		Client:     leases,
		LockConfig: resourcelock.ResourceLockConfig{Identity: "replica-1"},
	})
	if err != nil {
		panic(err)
	}
	r := &reconciler{Client: manager.GetClient(), reconciled: make(chan struct{})}
	err = ctrl.NewControllerManagedBy(manager).
		For(&corev1.Node{}, builder.WithPredicates(predicate.LabelChangedPredicate{})).
		Watches(&corev1.ConfigMap{}, handler.EnqueueRequestsFromMapFunc(nodeOf)).
		WithOptions(controller.Options{MaxConcurrentReconciles: 4}).
		Complete(r)
	if err != nil {
		panic(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error)
	go func() { ended <- manager.Start(ctx) }()

	<-r.reconciled
	limits.Add(&corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "node-1"},
		Data:       map[string]string{"pods": "50"},
	})
	<-r.reconciled
	stop()
	fmt.Printf("ended without an error: %v\n", <-ended == nil)
	lease, err := leases.Leases("default").Get(context.Background(), "nodes", metav1.GetOptions{})
	fmt.Printf("the lease is released: %v\n", err == nil && *lease.Spec.HolderIdentity == "")
}
