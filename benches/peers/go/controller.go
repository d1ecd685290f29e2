package main

import (
	"runtime"
	"sort"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
)

// work is the body of a reconcile. It may return a delay after which to reconcile the object again.
type work interface {
	reconcile(object *Recorded) (again time.Duration)
}

// watched is an object in a state: its number, and its version. The version is 1 at first, then that of the last
// change.
func watched(keys []string, number, version uint32) *Recorded {
	namespace, name, err := cache.SplitMetaNamespaceKey(keys[number])
	check(err)
	return &Recorded{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: name, ResourceVersion: strconv.FormatUint(uint64(version), 10),
		},
		key:     keys[number],
		number:  number,
		version: version,
	}
}

// listed is a server with one list of all objects in their first state, and a watch with the given capacity.
func listed(keys []string, room int) *server {
	items := make([]*Recorded, len(keys))
	for number := range items {
		items[number] = watched(keys, uint32(number), 1)
	}
	list := &RecordedList{ListMeta: metav1.ListMeta{ResourceVersion: "1"}, Items: items}
	return &server{list, make(chan watch.Event, room)}
}

// startController starts an informer, a queue and `workers` workers (0: one per key). They run until the process ends.
func startController(keys []string, source *server, workers int, work work) {
	informer := cache.NewSharedIndexInformer(source, &Recorded{}, 0, cache.Indexers{})
	queue := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[string]())
	add := func(object any) { queue.Add(object.(*Recorded).key) }
	must(informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: add, UpdateFunc: func(_, object any) { add(object) }, DeleteFunc: add,
	}))
	stop := make(chan struct{})
	go informer.Run(stop)
	if !cache.WaitForCacheSync(stop, informer.HasSynced) {
		panic("the informer has not synced")
	}
	if workers == 0 {
		workers = len(keys)
	}
	for range workers {
		go func() {
			for {
				key, _ := queue.Get()
				object, exists, err := informer.GetIndexer().GetByKey(key)
				check(err)
				if !exists {
					panic("an object is missing")
				}
				again := work.reconcile(object.(*Recorded))
				queue.Forget(key)
				if again > 0 {
					queue.AddAfter(key, again)
				}
				queue.Done(key)
			}
		}()
	}
}

// changes measures the time from a change of an object to the start of a reconcile that sees this change or a later
// one.
type changes struct {
	// How long a reconcile takes.
	work time.Duration
	// By change: the version that its object had before.
	before []uint32
	// By change: when it was sent.
	sent []atomic.Int64
	// By object: the version that its last reconcile saw; 0 before the first.
	seen   []atomic.Uint32
	listed atomic.Int64
	// The number of changes that a reconcile has seen, and the number to wait for.
	covered, awaited atomic.Int64
	reached          chan struct{}
	lock             sync.Mutex
	waits            []time.Duration
	slept            atomic.Int64
}

// The first change has this version.
const firstChange = 2

func newChanges(objects int, drawn []uint32, work time.Duration) *changes {
	last := make([]uint32, objects)
	for i := range last {
		last[i] = 1
	}
	all := &changes{
		work: work, before: make([]uint32, len(drawn)), sent: make([]atomic.Int64, len(drawn)), seen: make([]atomic.Uint32, objects),
		reached: make(chan struct{}, 1), waits: make([]time.Duration, 0, len(drawn)),
	}
	all.awaited.Store(1 << 62)
	for i, number := range drawn {
		all.before[i] = last[number]
		last[number] = uint32(i) + firstChange
	}
	return all
}

func (c *changes) begins(object *Recorded) {
	seen := c.seen[object.number].Swap(object.version)
	if seen == 0 && c.listed.Add(1) == int64(len(c.seen)) {
		c.notify()
	}
	oldest, covered := -1, int64(0)
	for version := object.version; version > max(seen, 1); version = c.before[oldest] {
		oldest = int(version - firstChange)
		covered++
	}
	if oldest < 0 {
		return
	}
	wait := time.Duration(sinceStart() - c.sent[oldest].Load())
	c.lock.Lock()
	c.waits = append(c.waits, wait)
	c.lock.Unlock()
	now, awaited := c.covered.Add(covered), c.awaited.Load()
	if now-covered < awaited && awaited <= now {
		c.notify()
	}
}

func (c *changes) notify() {
	select {
	case c.reached <- struct{}{}:
	default:
	}
}

func (c *changes) reconcile(object *Recorded) time.Duration {
	c.begins(object)
	// Reconciles of the initial list are not measured.
	if c.work > 0 && object.version >= firstChange {
		start := sinceStart()
		sleep(c.work)
		c.slept.Add(sinceStart() - start)
	}
	return 0
}

// sleep sleeps until a whole millisecond of the clock, like tokio's timer. The duration of a reconcile must not depend
// on the resolution of a runtime's timer.
func sleep(work time.Duration) {
	tick := int64(time.Millisecond)
	end := (sinceStart() + int64(work) + tick - 1) / tick * tick
	time.Sleep(time.Duration(end - sinceStart()))
}

// until waits until the given number of changes have been seen, or until the timeout.
func (c *changes) until(count int, most time.Duration) {
	c.awaited.Store(int64(count))
	timeout := time.After(most)
	for c.covered.Load() < int64(count) {
		select {
		case <-c.reached:
		case <-timeout:
			return
		}
	}
}

// controllerThroughput: all objects change; when a reconcile has seen each change, all change again. So no two changes
// are coalesced, and every implementation runs the same number of reconciles.
func controllerThroughput(options Options) Figures {
	all := keys(options.Keys)
	rounds := options.Adds / options.Keys
	drawn := make([]uint32, rounds*options.Keys)
	for i := range drawn {
		drawn[i] = uint32(i % options.Keys)
	}
	changes, source := newChanges(options.Keys, drawn, 0), listed(all, int(watch.DefaultChanSize))
	startController(all, source, options.Sides, changes)
	<-changes.reached
	runtime.GC()
	start, before := time.Now(), cpu()
	for change, number := range drawn {
		changes.sent[change].Store(sinceStart())
		source.events <- watch.Event{Type: watch.Modified, Object: watched(all, number, uint32(change)+firstChange)}
		if (change+1)%options.Keys == 0 {
			changes.until(change+1, time.Hour)
		}
	}
	took, used := time.Since(start), cpu()-before
	if len(changes.waits) != len(drawn) {
		panic("two changes were coalesced")
	}
	figures := controllerFigures(changes.waits, used, len(drawn))
	figures["ns"] = float64(took.Nanoseconds()) / float64(len(drawn))
	return figures
}

// pace is a plan of changes: of objects drawn at random, at random moments, at a given average rate. The sender checks every
// millisecond which changes are due.
type pace struct {
	keys    []string
	drawn   []uint32
	due     []uint32 // In microseconds.
	changes *changes
}

func newPace(options Options) *pace {
	count := options.Rate * options.Seconds
	window := time.Duration(options.Seconds) * time.Second
	drawn, due := choices(1, count, options.Keys), choices(2, count, int(window.Microseconds()))
	sort.Slice(due, func(i, j int) bool { return due[i] < due[j] })
	work := time.Duration(options.Work) * time.Millisecond
	return &pace{keys(options.Keys), drawn, due, newChanges(options.Keys, drawn, work)}
}

// send needs a watch with capacity for all changes: the sender must not wait.
func (p *pace) send(source *server) {
	start := time.Now()
	for change := 0; change < len(p.due); {
		passed, now := time.Since(start).Microseconds(), sinceStart()
		for ; change < len(p.due) && int64(p.due[change]) <= passed; change++ {
			p.changes.sent[change].Store(now)
			object := watched(p.keys, p.drawn[change], uint32(change)+firstChange)
			source.events <- watch.Event{Type: watch.Modified, Object: object}
		}
		time.Sleep(time.Millisecond)
	}
}

// end waits until all changes have been seen, for 5 s at most. A change that no reconcile has seen counts as having
// waited until then.
func (p *pace) end(before time.Duration) Figures {
	c := p.changes
	c.until(len(p.drawn), 5*time.Second)
	used, now := cpu()-before, sinceStart()
	c.lock.Lock()
	waits := c.waits
	seen := len(waits)
	for change, number := range p.drawn {
		if last := c.seen[number].Load(); last < uint32(change)+firstChange && c.before[change] <= last {
			waits = append(waits, time.Duration(now-c.sent[change].Load()))
		}
	}
	figures := controllerFigures(waits, used, seen)
	if c.work > 0 {
		figures["slept"] = float64(c.slept.Load()) / 1e6 / float64(seen)
	}
	return figures
}

// controllerPaced: changes at a fixed rate; each reconcile sleeps for the configured time.
func controllerPaced(options Options) Figures {
	pace := newPace(options)
	source := listed(pace.keys, len(pace.drawn))
	startController(pace.keys, source, options.Sides, pace.changes)
	<-pace.changes.reached
	runtime.GC()
	before := cpu()
	pace.send(source)
	return pace.end(before)
}

// overload: every key is requeued after its reconcile, and there are more keys than the workers can handle. Measures how
// long a due key waits for its reconcile.
type overload struct {
	work time.Duration
	// By key: when it became due or will be due; 0 before its first reconcile.
	due   []atomic.Int64
	never atomic.Int64
	lock  sync.Mutex
	waits []time.Duration
	slept atomic.Int64
}

const again = time.Second

func (t *overload) reconcile(object *Recorded) time.Duration {
	start, since := sinceStart(), t.due[object.number].Load()
	if since == 0 {
		t.never.Add(-1)
	}
	t.lock.Lock()
	t.waits = append(t.waits, time.Duration(max(start-since, 0)))
	t.lock.Unlock()
	sleep(t.work)
	end := sinceStart()
	t.slept.Add(end - start)
	t.due[object.number].Store(end + int64(again))
	return again
}

// controllerOverload: a key that is still due at the end counts as having waited until then, whether or not it was
// reconciled before.
func controllerOverload(options Options) Figures {
	overload := &overload{work: time.Duration(options.Work) * time.Millisecond, due: make([]atomic.Int64, options.Keys)}
	overload.never.Store(int64(options.Keys))
	all := keys(options.Keys)
	before := cpu()
	startController(all, listed(all, 1), options.Sides, overload)
	time.Sleep(time.Duration(options.Seconds) * time.Second)
	used, now := cpu()-before, sinceStart()
	overload.lock.Lock()
	waits := overload.waits
	reconciles := len(waits)
	for number := range overload.due {
		if due := overload.due[number].Load(); due < now {
			waits = append(waits, time.Duration(now-due))
		}
	}
	figures := controllerFigures(waits, used, reconciles)
	figures["never"] = float64(overload.never.Load())
	figures["slept"] = float64(overload.slept.Load()) / 1e6 / float64(reconciles)
	figures["rate"] = float64(reconciles) / float64(options.Seconds)
	return figures
}

func controllerFigures(waits []time.Duration, used time.Duration, reconciles int) Figures {
	figures := percentiles(waits, time.Microsecond)
	figures["cpu"] = float64(used.Nanoseconds()) / float64(reconciles)
	return figures
}
