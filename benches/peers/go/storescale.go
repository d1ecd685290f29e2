package main

import (
	"runtime"
	"sort"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
)

// storeOperations: single operations on a store of any size, each timed separately, clock included. Objects are added
// one after the other, then updated, read and looked up at random; then they are listed, with a write before each list.
func storeOperations(options Options) Figures {
	const most, lists = 3 * time.Second, 300
	pods, figures := fleet(options.Keys, namespaces), Figures{}
	store, updates, nodes := newStore(options.Indexes), updates(pods, options.Adds+lists, 1), nodes(options.Keys)
	tails := func(name string, taken []time.Duration) {
		sort.Slice(taken, func(i, j int) bool { return taken[i] < taken[j] })
		at := func(permille int) float64 { return float64(taken[min(len(taken)*permille/1000, len(taken)-1)]) }
		figures[name+"-p50"], figures[name+"-p99"], figures[name+"-p999"] = at(500), at(990), at(999)
	}
	timed := func(name string, count int, most time.Duration, work func(i int)) {
		runtime.GC()
		taken := make([]time.Duration, 0, count)
		begin, last := time.Now(), time.Duration(0)
		for i := range count {
			work(i)
			now := time.Since(begin)
			taken = append(taken, now-last)
			last = now
			if now > most {
				break
			}
		}
		tails(name, taken)
	}
	timed("add", len(pods), time.Hour, func(i int) { put(store, pods[i]) })
	timed("update", options.Adds, most, func(i int) { put(store, updates[i]) })
	drawn := choices(3, options.Adds, len(pods))
	timed("get", options.Adds, most, func(i int) {
		if _, exists, _ := store.GetByKey(pods[drawn[i]].key); !exists {
			panic("an object is missing")
		}
	})
	asked := choices(2, options.Adds, len(nodes))
	timed("by-index", options.Adds, most, func(i int) {
		sink.Add(readAll(must(store.ByIndex("node", nodes[asked[i]]))))
	})
	var listed []time.Duration
	for begin, i := time.Now(), 0; i < lists && time.Since(begin) < most; i++ {
		put(store, updates[options.Adds+i])
		start := time.Now()
		sink.Add(uint64(len(store.List())))
		listed = append(listed, time.Since(start))
	}
	// client-go's snapshot is its list.
	tails("snapshot", listed)
	tails("list", listed)
	return figures
}

// storeReaders: the shape of BenchmarkSharedIndexInformer. Readers repeatedly list the one namespace with all pods,
// while modifications go through a watch and an informer to a handler. At most ten modifications are in progress at a
// time.
func storeReaders(options Options) Figures {
	fleet := fleet(options.Keys, 1)
	all := make([]*Recorded, len(fleet))
	for i, pod := range fleet {
		_, name, err := cache.SplitMetaNamespaceKey(pod.key)
		check(err)
		all[i] = &Recorded{ObjectMeta: metav1.ObjectMeta{Namespace: pod.namespace, Name: name, ResourceVersion: "1"}}
	}
	namespace := all[0].Namespace
	source := &server{&RecordedList{ListMeta: metav1.ListMeta{ResourceVersion: "1"}, Items: all}, make(chan watch.Event, 1)}
	informer := cache.NewSharedIndexInformer(source, &Recorded{}, 0, cache.Indexers{
		cache.NamespaceIndex: cache.MetaNamespaceIndexFunc,
	})
	stop := make(chan struct{})
	var running, readers sync.WaitGroup
	running.Go(func() { informer.Run(stop) })
	if !cache.WaitForCacheSync(stop, informer.HasSynced) {
		panic("the informer has not synced")
	}
	var reads, writes atomic.Int64
	underWay := make(chan struct{}, 10)
	handler := must(informer.AddEventHandler(cache.ResourceEventHandlerFuncs{UpdateFunc: func(_, _ any) {
		writes.Add(1)
		select {
		case <-underWay:
		default:
		}
	}}))
	if !cache.WaitForCacheSync(stop, handler.HasSynced) {
		panic("the handler has not synced")
	}
	runtime.GC()
	var enough atomic.Bool
	for range options.Sides {
		readers.Go(func() {
			for !enough.Load() {
				check(cache.ListAllByNamespace(informer.GetIndexer(), namespace, labels.Everything(), func(any) {}))
				reads.Add(1)
			}
		})
	}
	state, begin := draws(8), time.Now()
	for version := 2; time.Since(begin) < time.Duration(options.Seconds)*time.Second; version++ {
		modified := *all[state.next(len(all))]
		modified.ResourceVersion = strconv.Itoa(version)
		source.events <- watch.Event{Type: watch.Modified, Object: &modified}
		underWay <- struct{}{}
	}
	took := time.Since(begin).Seconds()
	figures := Figures{"reads": float64(reads.Load()) / took, "writes": float64(writes.Load()) / took}
	enough.Store(true)
	readers.Wait()
	close(stop)
	running.Wait()
	return figures
}
