package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"sort"
	"sync"
	"sync/atomic"
	"time"

	"github.com/klauspost/compress/zstd"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
)

// cluster: the recorded cluster through client-go's informers, handlers and work queues into the two controllers of
// `tools/replay`, again and again; the median pass, an event. A pass runs from the first event handed in, after all
// caches have synced, to both queues drained; decoding is not in it, and objects are cut down to what the controllers need, as ours
// are. What the controllers stored last has to be what the cluster had settled on.
func cluster(options Options) Figures {
	recorded := readTrace(options.Trace)
	begin, passes := time.Now(), []float64{}
	for len(passes) == 0 || time.Since(begin) < time.Duration(options.Seconds)*time.Second {
		passes = append(passes, float64(recorded.play().Nanoseconds())/float64(recorded.events))
	}
	sort.Float64s(passes)
	return Figures{"ns": passes[len(passes)/2], "passes": float64(len(passes))}
}

// resources of the recorded cluster, in no order that matters.
const (
	pods = iota
	services
	nodesOf
	deployments
	replicasets
	endpointslices
	resources
)

var resourceNames = [resources]string{"pods", "services", "nodes", "deployments", "replicasets", "endpointslices"}

// Recorded is an object of any of the resources.
type Recorded struct {
	metav1.TypeMeta
	metav1.ObjectMeta
	key string
	// Of a pod.
	owner, ownerKey string
	ready           bool
	address         string
	// Of a Service.
	selector labels.Set
	// Of a ReplicaSet, as its status says.
	settled counts
	// Of an EndpointSlice: what leads to pods, and the Service it is of.
	service   string
	addresses []string
}

// counts are replicas, and how many of them are ready.
type counts struct{ all, ready int }

func (r *Recorded) DeepCopyObject() runtime.Object {
	copied := *r
	copied.ObjectMeta = *r.ObjectMeta.DeepCopy()
	return &copied
}

// RecordedList is a list of any of the resources.
type RecordedList struct {
	metav1.TypeMeta
	metav1.ListMeta
	Items []*Recorded
}

func (l *RecordedList) DeepCopyObject() runtime.Object {
	copied := *l
	copied.Items = slices.Clone(l.Items)
	return &copied
}

// happening is one event of the trace.
type happening struct {
	resource int
	event    watch.Event
}

type trace struct {
	lists [resources]*RecordedList
	told  []happening
	// By resource: events without bookmarks, and the last version.
	handled  [resources]int64
	versions [resources]string
	events   int
	// What the cluster had settled on.
	replicas  map[string]counts
	selecting []string
	endpoints map[string][]string
}

func readTrace(path string) *trace {
	file := must(os.Open(path))
	defer file.Close()
	decoder := must(zstd.NewReader(file))
	defer decoder.Close()
	lines := bufio.NewScanner(decoder)
	lines.Buffer(nil, 1<<30)
	recorded := &trace{replicas: map[string]counts{}, endpoints: map[string][]string{}}
	for lines.Scan() {
		var line struct {
			Resource, Type string
			Object         json.RawMessage
		}
		check(json.Unmarshal(lines.Bytes(), &line))
		recorded.take(slices.Index(resourceNames[:], line.Resource), line.Type, line.Object)
	}
	check(lines.Err())
	return recorded
}

func (t *trace) take(resource int, kind string, object json.RawMessage) {
	switch kind {
	case "LIST", "FINAL":
		var list struct {
			Metadata metav1.ListMeta
			Items    []json.RawMessage
		}
		check(json.Unmarshal(object, &list))
		items := make([]*Recorded, 0, len(list.Items))
		for _, item := range list.Items {
			items = append(items, decode(item))
		}
		if kind == "LIST" {
			t.lists[resource] = &RecordedList{ListMeta: list.Metadata, Items: items}
			t.versions[resource] = list.Metadata.ResourceVersion
		} else {
			t.settle(resource, items)
		}
	case "BOOKMARK":
		decoded := decode(object)
		t.versions[resource] = decoded.ResourceVersion
		t.told = append(t.told, happening{resource, watch.Event{Type: watch.Bookmark, Object: decoded}})
	default:
		decoded := decode(object)
		t.versions[resource] = decoded.ResourceVersion
		t.told = append(t.told, happening{resource, watch.Event{Type: watch.EventType(kind), Object: decoded}})
		t.handled[resource]++
		t.events++
	}
}

func (t *trace) settle(resource int, items []*Recorded) {
	for _, item := range items {
		switch resource {
		case replicasets:
			t.replicas[item.key] = item.settled
		case services:
			if len(item.selector) > 0 {
				t.selecting = append(t.selecting, item.key)
			}
		case endpointslices:
			if item.service != "" {
				t.endpoints[item.service] = append(t.endpoints[item.service], item.addresses...)
			}
		}
	}
}

func decode(text json.RawMessage) *Recorded {
	var wire struct {
		Metadata struct {
			Name, Namespace, UID, ResourceVersion string
			DeletionTimestamp                     *metav1.Time
			Labels                                map[string]string
			OwnerReferences                       []metav1.OwnerReference
		}
		Spec   struct{ Selector json.RawMessage }
		Status struct {
			PodIP                   string
			Conditions              []struct{ Type, Status string }
			Replicas, ReadyReplicas int
		}
		Endpoints []struct {
			Addresses  []string
			Conditions struct{ Ready *bool }
		}
	}
	check(json.Unmarshal(text, &wire))
	meta := wire.Metadata
	object := &Recorded{
		ObjectMeta: metav1.ObjectMeta{
			Name: meta.Name, Namespace: meta.Namespace, UID: types.UID(meta.UID), ResourceVersion: meta.ResourceVersion,
			Labels: meta.Labels, DeletionTimestamp: meta.DeletionTimestamp,
		},
		address: wire.Status.PodIP,
		settled: counts{wire.Status.Replicas, wire.Status.ReadyReplicas},
	}
	object.key = cache.MetaObjectToName(object).String()
	for _, owner := range meta.OwnerReferences {
		if owner.Controller != nil && *owner.Controller && owner.Kind == "ReplicaSet" {
			object.owner, object.ownerKey = string(owner.UID), meta.Namespace+"/"+owner.Name
		}
	}
	for _, condition := range wire.Status.Conditions {
		object.ready = object.ready || condition.Type == "Ready" && condition.Status == "True"
	}
	// A Deployment's has another form, and nobody asks for it.
	_ = json.Unmarshal(wire.Spec.Selector, &object.selector)
	if service := meta.Labels["kubernetes.io/service-name"]; service != "" {
		object.service = meta.Namespace + "/" + service
	}
	for _, endpoint := range wire.Endpoints {
		// An endpoint that says nothing about being ready is ready.
		if endpoint.Conditions.Ready == nil || *endpoint.Conditions.Ready {
			object.addresses = append(object.addresses, endpoint.Addresses...)
		}
	}
	return object
}

// server lists and watches one resource, as an API server that knows no streaming lists.
type server struct {
	list   *RecordedList
	events chan watch.Event
}

func (s *server) List(metav1.ListOptions) (runtime.Object, error) { return s.list, nil }

func (s *server) Watch(metav1.ListOptions) (watch.Interface, error) { return s, nil }

func (s *server) ResultChan() <-chan watch.Event { return s.events }

func (s *server) Stop() {}

func (s *server) IsWatchListSemanticsUnSupported() bool { return true }

// controller is a queue, its workers, and what they stored last.
type controller struct {
	queue   workqueue.TypedRateLimitingInterface[string]
	workers sync.WaitGroup
	lock    sync.Mutex
	stored  map[string]any
}

const workers = 4

// run starts the workers. `reconcile` gives nil for what is gone.
func (c *controller) run(reconcile func(key string) any) {
	c.stored = map[string]any{}
	c.queue = workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[string]())
	for range workers {
		c.workers.Go(func() {
			for {
				key, shutdown := c.queue.Get()
				if shutdown {
					return
				}
				result := reconcile(key)
				c.lock.Lock()
				if result == nil {
					delete(c.stored, key)
				} else {
					c.stored[key] = result
				}
				c.lock.Unlock()
				c.queue.Forget(key)
				c.queue.Done(key)
			}
		})
	}
}

// play runs one pass.
func (t *trace) play() time.Duration {
	stop := make(chan struct{})
	var running sync.WaitGroup
	var informers [resources]cache.SharedIndexInformer
	var servers [resources]*server
	for resource := range resources {
		servers[resource] = &server{t.lists[resource], make(chan watch.Event, watch.DefaultChanSize)}
		indexers := cache.Indexers{}
		if resource == pods || resource == services {
			indexers["namespace"] = func(object any) ([]string, error) { return []string{object.(*Recorded).Namespace}, nil }
		}
		if resource == pods {
			indexers["owner"] = func(object any) ([]string, error) {
				if owner := object.(*Recorded).owner; owner != "" {
					return []string{owner}, nil
				}
				return nil, nil
			}
		}
		informers[resource] = cache.NewSharedIndexInformer(servers[resource], &Recorded{}, 0, indexers)
	}
	var counting, collecting controller
	counting.run(func(key string) any { return count(key, informers[replicasets], informers[pods]) })
	collecting.run(func(key string) any { return collect(key, informers[services], informers[pods]) })

	var handled [resources]atomic.Int64
	handle := func(resource int, changed func(old, new *Recorded)) {
		must(informers[resource].AddEventHandler(cache.ResourceEventHandlerDetailedFuncs{
			AddFunc: func(object any, initial bool) {
				changed(nil, object.(*Recorded))
				if !initial {
					handled[resource].Add(1)
				}
			},
			UpdateFunc: func(old, new any) {
				changed(old.(*Recorded), new.(*Recorded))
				handled[resource].Add(1)
			},
			DeleteFunc: func(object any) {
				changed(object.(*Recorded), nil)
				handled[resource].Add(1)
			},
		}))
	}
	handle(pods, func(old, new *Recorded) {
		var last string
		for _, pod := range []*Recorded{new, old} {
			if pod != nil && pod.ownerKey != "" && pod.ownerKey != last {
				last = pod.ownerKey
				counting.queue.Add(last)
			}
		}
		for _, service := range selecting(informers[services], old, new) {
			collecting.queue.Add(service)
		}
	})
	handle(services, func(old, new *Recorded) { collecting.queue.Add(either(old, new).key) })
	handle(replicasets, func(old, new *Recorded) { counting.queue.Add(either(old, new).key) })

	synced := make([]cache.InformerSynced, 0, resources)
	for _, informer := range informers {
		running.Go(func() { informer.Run(stop) })
		synced = append(synced, informer.HasSynced)
	}
	if !cache.WaitForCacheSync(stop, synced...) {
		panic("a cache has not synced")
	}

	start := time.Now()
	for _, happening := range t.told {
		servers[happening.resource].events <- happening.event
	}
	for resource, informer := range informers {
		for informer.LastSyncResourceVersion() != t.versions[resource] {
			time.Sleep(50 * time.Microsecond)
		}
	}
	for _, resource := range []int{pods, services, replicasets} {
		for handled[resource].Load() < t.handled[resource] {
			time.Sleep(50 * time.Microsecond)
		}
	}
	for _, controller := range []*controller{&counting, &collecting} {
		controller.queue.ShutDown()
		controller.workers.Wait()
	}
	took := time.Since(start)
	close(stop)
	running.Wait()
	t.compare(&counting, &collecting)
	return took
}

func either(old, new *Recorded) *Recorded {
	if new != nil {
		return new
	}
	return old
}

// selecting are the Services that select the pod, or did before the change.
func selecting(services cache.SharedIndexInformer, old, new *Recorded) (keys []string) {
	for _, object := range must(services.GetIndexer().ByIndex("namespace", either(old, new).Namespace)) {
		service := object.(*Recorded)
		if service.selects(old) || service.selects(new) {
			keys = append(keys, service.key)
		}
	}
	return keys
}

func (r *Recorded) selects(pod *Recorded) bool {
	if pod == nil || len(r.selector) == 0 {
		return false
	}
	for name, value := range r.selector {
		if own, there := pod.Labels[name]; !there || own != value {
			return false
		}
	}
	return true
}

// count counts the pods that a ReplicaSet controls.
func count(key string, replicasets, pods cache.SharedIndexInformer) any {
	object, exists, err := replicasets.GetIndexer().GetByKey(key)
	check(err)
	if !exists {
		return nil
	}
	found := counts{}
	for _, object := range must(pods.GetIndexer().ByIndex("owner", string(object.(*Recorded).UID))) {
		pod := object.(*Recorded)
		if pod.DeletionTimestamp == nil {
			found.all++
			if pod.ready {
				found.ready++
			}
		}
	}
	return found
}

// collect collects the addresses that a Service leads to.
func collect(key string, services, pods cache.SharedIndexInformer) any {
	object, exists, err := services.GetIndexer().GetByKey(key)
	check(err)
	if !exists || len(object.(*Recorded).selector) == 0 {
		return nil
	}
	service, addresses := object.(*Recorded), []string{}
	for _, object := range must(pods.GetIndexer().ByIndex("namespace", service.Namespace)) {
		pod := object.(*Recorded)
		if pod.ready && pod.DeletionTimestamp == nil && pod.address != "" && service.selects(pod) {
			addresses = append(addresses, pod.address)
		}
	}
	return addresses
}

// compare sets what the controllers stored last beside what the cluster had settled on.
func (t *trace) compare(counting, collecting *controller) {
	for key, settled := range t.replicas {
		if counting.stored[key] != settled {
			panic(fmt.Sprintf("%s: %v, settled %v", key, counting.stored[key], settled))
		}
	}
	if len(counting.stored) != len(t.replicas) {
		panic("a ReplicaSet that is gone is still stored")
	}
	for _, key := range t.selecting {
		stored, _ := collecting.stored[key].([]string)
		if stored, settled := sorted(stored), sorted(t.endpoints[key]); !slices.Equal(stored, settled) {
			panic(fmt.Sprintf("%s: %v, settled %v", key, stored, settled))
		}
	}
	if len(collecting.stored) != len(t.selecting) {
		panic("a Service that is gone is still stored")
	}
}

func sorted(addresses []string) []string {
	return slices.Compact(slices.Sorted(slices.Values(addresses)))
}

func must[T any](value T, err error) T {
	check(err)
	return value
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}
