// An informer, an index by node, and a queue with a worker that fails once.
package main

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
	fake "k8s.io/client-go/tools/cache/testing"
	"k8s.io/client-go/util/workqueue"
)

func byNode(obj any) ([]string, error) { return []string{obj.(*corev1.Pod).Spec.NodeName}, nil }

func pod(name string) *corev1.Pod {
	meta := metav1.ObjectMeta{Namespace: "default", Name: name}
	return &corev1.Pod{ObjectMeta: meta, Spec: corev1.PodSpec{NodeName: "node-1"}}
}

func main() {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	server := fake.NewFakeControllerSource()
	server.Add(pod("web-0"))

	queue := workqueue.NewTypedRateLimitingQueue(
		workqueue.NewTypedItemExponentialFailureRateLimiter[string](5*time.Millisecond, 1000*time.Second))
	add := func(obj any) {
		if key, err := cache.DeletionHandlingMetaNamespaceKeyFunc(obj); err == nil {
			queue.Add(key)
		}
	}
	pods := cache.NewSharedIndexInformer(server, &corev1.Pod{}, 0, cache.Indexers{"node": byNode})
	registration, _ := pods.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: add, UpdateFunc: func(_, pod any) { add(pod) }, DeleteFunc: add})
	go pods.RunWithContext(ctx)
	cache.WaitForCacheSync(ctx.Done(), registration.HasSynced)

	for step := 1; step <= 4; step++ {
		key, _ := queue.Get()
		if step == 1 {
			fmt.Printf("%s: failed\n", key)
			queue.AddRateLimited(key) // retried after 5 ms
		} else if _, exists, _ := pods.GetStore().GetByKey(key); !exists {
			fmt.Printf("%s: deleted\n", key)
			queue.Forget(key)
		} else {
			onNode, _ := pods.GetIndexer().ByIndex("node", "node-1")
			fmt.Printf("%s: pods on node-1: %d\n", key, len(onNode))
			queue.Forget(key) // resets the failure count
		}
		queue.Done(key)
		switch step {
		case 2:
			server.Add(pod("web-1"))
		case 3:
			server.Delete(pod("web-0"))
		}
	}
	queue.ShutDown()
	_, shutdown := queue.Get()
	fmt.Printf("a key after the shutdown: %v\n", !shutdown)
}
