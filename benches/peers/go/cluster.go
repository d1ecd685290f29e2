package main

import (
	"cmp"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
)

// cluster: passes of the recorded cluster through client-go's informers, handlers and work queues into the two
// controllers of `tools/replay`. The figure is the time per event of the median pass. A pass runs from the first event,
// after all caches have synced, until both queues are drained. Decoding is not included, and objects are reduced to the
// fields that the controllers need, as in the Rust program. The last values that the controllers stored must match the
// final state of the recorded cluster.
//
// A wait begins when a handler adds the key, and ends when a worker gets it. CPU time is that of the pass; memory is the
// peak of the process during the passes.
func cluster(options Options) Figures {
	recorded := readTrace(options.Trace, options.Scale)
	memory := watchMemory()
	begin, passes := time.Now(), []pass{}
	for len(passes) == 0 || time.Since(begin) < time.Duration(options.Seconds)*time.Second {
		passes = append(passes, recorded.play(options.Speed))
	}
	before, peak := memory.end()
	slices.SortFunc(passes, func(one, other pass) int { return cmp.Compare(one.took, other.took) })
	median := passes[len(passes)/2]
	waits := median.waits
	if options.Speed > 0 {
		waits = median.lags
	}
	slices.Sort(waits)
	micros := func(percent int) float64 {
		return float64(waits[max((len(waits)*percent+99)/100-1, 0)].Nanoseconds()) / 1e3
	}
	return Figures{
		"ns":     float64(median.took.Nanoseconds()) / float64(recorded.events),
		"cpu":    float64(median.cpu.Nanoseconds()) / float64(recorded.events),
		"p50":    micros(50),
		"p99":    micros(99),
		"max":    micros(100),
		"peak":   peak,
		"before": before,
	}
}

// pass is the result of one pass.
type pass struct {
	took, cpu time.Duration
	waits     []time.Duration
	// The time from a change, at its time in the recording, to the reconcile after it; only measured at a given speed.
	lags []time.Duration
}

// server lists and watches one resource, like an API server without streaming lists.
type server struct {
	list   *RecordedList
	events chan watch.Event
}

func (s *server) List(metav1.ListOptions) (runtime.Object, error) { return s.list, nil }

func (s *server) Watch(metav1.ListOptions) (watch.Interface, error) { return s, nil }

func (s *server) ResultChan() <-chan watch.Event { return s.events }

func (s *server) Stop() {}

func (s *server) IsWatchListSemanticsUnSupported() bool { return true }

// controller is a queue, its workers, and the values they stored last.
type controller struct {
	queue   workqueue.TypedRateLimitingInterface[string]
	workers sync.WaitGroup
	queued  moments
	lock    sync.Mutex
	stored  map[string]any
	waits   []time.Duration
	lags    []time.Duration
}

// add adds a key, and records the time unless the key is queued already.
func (c *controller) add(key string, queued *addition, because *Recorded) {
	queued.since.CompareAndSwap(0, sinceStart())
	if because.happened > 0 {
		queued.changed.CompareAndSwap(0, because.happened)
	}
	c.queue.Add(key)
}

var started = time.Now()

func sinceStart() int64 { return max(int64(time.Since(started)), 1) }

const workers = 4

// run starts the workers. `reconcile` returns nil for an object that does not exist.
func (c *controller) run(queued moments, reconcile func(key string) any) {
	c.queued, c.stored = queued, map[string]any{}
	c.queue = workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[string]())
	for range workers {
		c.workers.Go(func() {
			for {
				key, shutdown := c.queue.Get()
				if shutdown {
					return
				}
				now, queued := sinceStart(), c.queued[key]
				since, changed := queued.since.Swap(0), queued.changed.Swap(0)
				result := reconcile(key)
				c.lock.Lock()
				// It is 0 if the key was added between the worker's Get and this load.
				if since > 0 {
					c.waits = append(c.waits, time.Duration(now-since))
				}
				if changed > 0 {
					c.lags = append(c.lags, time.Duration(now-changed))
				}
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

func add(to *controller, object *Recorded) { to.add(object.key, object.queued, object) }

// sendEvents sends the events of the trace: as fast as the informers process them, or at `speed` times the recorded speed, in
// steps of a millisecond.
func (t *trace) sendEvents(speed float64, servers [resources]*server) {
	start := time.Now()
	for place := 0; place < len(t.timeline); {
		passed, now := t.timeline[0].at+time.Duration(float64(time.Since(start))*speed), sinceStart()
		for ; place < len(t.timeline) && (speed == 0 || t.timeline[place].at <= passed); place++ {
			happening := t.timeline[place]
			if object, ok := happening.event.Object.(*Recorded); ok && speed > 0 {
				object.happened = now
			}
			servers[happening.resource].events <- happening.event
		}
		if place < len(t.timeline) {
			time.Sleep(time.Millisecond)
		}
	}
}

// play runs one pass.
func (t *trace) play(speed float64) pass {
	stop := make(chan struct{})
	var running sync.WaitGroup
	var informers [resources]cache.SharedIndexInformer
	var servers [resources]*server
	for resource := range resources {
		room := int(watch.DefaultChanSize)
		if speed > 0 {
			// The capacity is the number of events, so the sender never waits.
			room = len(t.timeline)
		}
		servers[resource] = &server{t.lists[resource], make(chan watch.Event, room)}
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
	counting.run(t.counted, func(key string) any { return count(key, informers[replicasets], informers[pods]) })
	collecting.run(t.collected, func(key string) any { return collect(key, informers[services], informers[pods]) })

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
				counting.add(last, pod.ownerQueued, either(old, new))
			}
		}
		for _, service := range selecting(informers[services], old, new) {
			collecting.add(service.key, service.queued, either(old, new))
		}
	})
	handle(services, func(old, new *Recorded) { add(&collecting, either(old, new)) })
	handle(replicasets, func(old, new *Recorded) { add(&counting, either(old, new)) })

	synced := make([]cache.InformerSynced, 0, resources)
	for _, informer := range informers {
		running.Go(func() { informer.Run(stop) })
		synced = append(synced, informer.HasSynced)
	}
	if !cache.WaitForCacheSync(stop, synced...) {
		panic("a cache has not synced")
	}

	start, before := time.Now(), cpu()
	t.sendEvents(speed, servers)
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
	took, used := time.Since(start), cpu()-before
	close(stop)
	running.Wait()
	t.compare(&counting, &collecting)
	return pass{took, used, append(counting.waits, collecting.waits...), append(counting.lags, collecting.lags...)}
}

func either(old, new *Recorded) *Recorded {
	if new != nil {
		return new
	}
	return old
}

// selecting returns the Services that select the pod, or selected it before the change.
func selecting(services cache.SharedIndexInformer, old, new *Recorded) (selecting []*Recorded) {
	for _, object := range must(services.GetIndexer().ByIndex("namespace", either(old, new).Namespace)) {
		service := object.(*Recorded)
		if service.selects(old) || service.selects(new) {
			selecting = append(selecting, service)
		}
	}
	return selecting
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

// collect collects the addresses of the pods that a Service selects.
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

// compare compares the values that the controllers stored last with the final state of the recorded cluster.
func (t *trace) compare(counting, collecting *controller) {
	for key, settled := range t.replicas {
		if counting.stored[key] != settled {
			panic(fmt.Sprintf("%s: %v, settled %v", key, counting.stored[key], settled))
		}
	}
	if len(counting.stored) != len(t.replicas) {
		panic("a deleted ReplicaSet is still stored")
	}
	for _, key := range t.selecting {
		stored, _ := collecting.stored[key].([]string)
		if stored, settled := sorted(stored), sorted(t.endpoints[key]); !slices.Equal(stored, settled) {
			panic(fmt.Sprintf("%s: %v, settled %v", key, stored, settled))
		}
	}
	if len(collecting.stored) != len(t.selecting) {
		panic("a deleted Service is still stored")
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
