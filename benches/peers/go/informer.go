package main

import (
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	k8sruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
)

// progress counts the listeners that have received all objects, and those that have received the last state of each.
type progress struct {
	listed, ended sync.WaitGroup
	times         atomic.Int64
}

// lastHandler records when it has received the last state of each object.
func (t *progress) lastHandler(last []uint32) cache.ResourceEventHandler {
	listed, left := len(last), 0
	for _, version := range last {
		if version >= firstChange {
			left++
		}
	}
	t.listed.Add(1)
	t.ended.Add(1)
	known := make([]uint32, len(last))
	return handler(func(object *Recorded) {
		before := known[object.number]
		if before == 0 {
			listed--
			if listed == 0 {
				t.listed.Done()
			}
		}
		known[object.number] = max(before, object.version)
		if object.version < firstChange {
			return
		}
		t.times.Add(1)
		if object.version > before && object.version == last[object.number] {
			left--
			if left == 0 {
				t.ended.Done()
			}
		}
	})
}

func handler(handle func(object *Recorded)) cache.ResourceEventHandler {
	return cache.ResourceEventHandlerFuncs{
		AddFunc:    func(object any) { handle(object.(*Recorded)) },
		UpdateFunc: func(_, object any) { handle(object.(*Recorded)) },
	}
}

func startInformer(source cache.ListerWatcher, handlers ...cache.ResourceEventHandler) cache.SharedIndexInformer {
	informer := cache.NewSharedIndexInformer(source, &Recorded{}, 0, cache.Indexers{})
	for _, handler := range handlers {
		must(informer.AddEventHandler(handler))
	}
	go informer.Run(make(chan struct{}))
	return informer
}

// informerEvents: objects drawn at random change as fast as the watch accepts it, until all listeners have received the
// last state of each.
func informerEvents(options Options) Figures {
	all, drawn := keys(options.Keys), choices(1, options.Adds, options.Keys)
	last := slices.Repeat([]uint32{1}, options.Keys)
	for i, number := range drawn {
		last[number] = uint32(i) + firstChange
	}
	source, progress := listed(all, int(watch.DefaultChanSize)), &progress{}
	handlers := make([]cache.ResourceEventHandler, options.Sides)
	for i := range handlers {
		handlers[i] = progress.lastHandler(last)
	}
	startInformer(source, handlers...)
	progress.listed.Wait()
	runtime.GC()
	start, before := time.Now(), cpu()
	for i, number := range drawn {
		source.events <- watch.Event{Type: watch.Modified, Object: watched(all, number, uint32(i)+firstChange)}
	}
	progress.ended.Wait()
	took, used := time.Since(start), cpu()-before
	return Figures{
		"ns":   float64(took.Nanoseconds()) / float64(options.Adds),
		"cpu":  float64(used.Nanoseconds()) / float64(options.Adds),
		"told": float64(progress.times.Load()) / float64(options.Adds) / float64(options.Sides),
	}
}

// informerSlowHandler: the latency of a listener beside another one that is too slow to handle every change, and the
// memory that the slow listener costs.
func informerSlowHandler(options Options) Figures {
	slow := time.Duration(options.Work) * time.Millisecond
	options.Work = 0
	pace := newPace(options)
	source := listed(pace.keys, len(pace.drawn))
	startInformer(source, handler(pace.changes.begins), handler(func(object *Recorded) {
		// Objects of the initial list are not measured.
		if object.version >= firstChange {
			time.Sleep(slow)
		}
	}))
	<-pace.changes.reached
	memory, before := watchMemory(), cpu()
	pace.send(source)
	figures := pace.end(before)
	memory.record(figures)
	return figures
}

// informerLateJoin: listeners join one after the other while objects change. Measures the time until each has all
// objects, and the latency of a listener that was there before.
func informerLateJoin(options Options) Figures {
	const joins = 5
	pace := newPace(options)
	source := listed(pace.keys, len(pace.drawn))
	informer := startInformer(source, handler(pace.changes.begins))
	<-pace.changes.reached
	runtime.GC()
	joined := make(chan []time.Duration)
	go func() {
		var all []time.Duration
		for range joins {
			time.Sleep(time.Duration(options.Seconds) * time.Second / (joins + 1))
			known, left, start := make(chan struct{}), options.Keys, time.Now()
			registration := must(informer.AddEventHandler(handler(func(*Recorded) {
				left--
				if left == 0 {
					close(known)
				}
			})))
			<-known
			all = append(all, time.Since(start))
			check(informer.RemoveEventHandler(registration))
		}
		slices.Sort(all)
		joined <- all
	}()
	before := cpu()
	pace.send(source)
	figures := pace.end(before)
	figures["joined"] = float64((<-joined)[joins/2].Nanoseconds()) / 1e6
	return figures
}

// relisted returns its lists one after the other.
type relisted struct {
	server
	lists  []*RecordedList
	begins func()
}

func (r *relisted) List(metav1.ListOptions) (k8sruntime.Object, error) {
	list := r.lists[0]
	r.lists = r.lists[1:]
	if len(r.lists) == 0 {
		r.begins()
	}
	return list, nil
}

func (r *relisted) Watch(metav1.ListOptions) (watch.Interface, error) { return r, nil }

// informerRelist: a relist. All objects are newer, or only the last one is. Measures the time until a listener has
// received the changes, and the memory used meanwhile. The objects are allocated before the clock starts, as if they
// were decoded from the wire.
func informerRelist(options Options) Figures {
	all, last := keys(options.Keys), slices.Repeat([]uint32{1}, options.Keys)
	first, second := listed(all, 1), listed(keys(options.Keys), 1)
	for number, object := range second.list.Items {
		if options.Percent > 0 || number == options.Keys-1 {
			second.list.Items[number] = watched(keysOf(object), 0, 2)
			second.list.Items[number].number = uint32(number)
			last[number] = 2
		}
	}
	second.list.ResourceVersion = "2"
	var start time.Time
	var memory memory
	source := &relisted{*first, []*RecordedList{first.list, second.list}, func() {
		memory = watchMemory()
		start = time.Now()
	}}
	progress := &progress{}
	startInformer(source, progress.lastHandler(last))
	progress.listed.Wait()
	expired := &metav1.Status{Status: metav1.StatusFailure, Code: 410, Reason: metav1.StatusReasonExpired}
	source.events <- watch.Event{Type: watch.Error, Object: expired}
	progress.ended.Wait()
	figures := Figures{"ms": float64(time.Since(start).Nanoseconds()) / 1e6}
	memory.record(figures)
	return figures
}

func keysOf(object *Recorded) []string { return []string{object.key} }
