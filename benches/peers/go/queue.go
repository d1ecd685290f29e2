package main

import (
	"fmt"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
)

// newQueue builds a queue of the given library.
func newQueue(who string) workqueue.TypedInterface[string] {
	switch who {
	case "client-go":
		return workqueue.NewTyped[string]()
	case "controller-runtime":
		return priorityqueue.New[string]("")
	}
	fmt.Fprintln(os.Stderr, "unknown library:", who)
	os.Exit(2)
	return nil
}

// drain gets and completes `count` keys.
func drain(queue workqueue.TypedInterface[string], count int) {
	for range count {
		key, _ := queue.Get()
		queue.Done(key)
	}
}

func perOp(start time.Time, ops int) float64 {
	return float64(time.Since(start).Nanoseconds()) / float64(ops)
}

// cycle: adds all keys, then gets and completes all keys, repeatedly.
func cycle(options Options) Figures {
	queue, all := newQueue(options.Who), keys(options.Keys)
	round := func() {
		for _, key := range all {
			queue.Add(key)
		}
		drain(queue, len(all))
	}
	rounds := max(options.Adds/len(all), 1)
	for range max(rounds/10, 1) {
		round()
	}
	start := time.Now()
	for range rounds {
		round()
	}
	return Figures{"ns": perOp(start, rounds*len(all))}
}

// cyclePriority: cycle with each key at one of three priorities, for controller-runtime's priority queue.
func cyclePriority(options Options) Figures {
	queue, all := priorityqueue.New[string](""), keys(options.Keys)
	levels, priorities := []int{-100, 0, 10}, make([]*int, len(all))
	for i, level := range choices(5, len(all), len(levels)) {
		priorities[i] = &levels[level]
	}
	round := func() {
		for i, key := range all {
			queue.AddWithOpts(priorityqueue.AddOpts{Priority: priorities[i]}, key)
		}
		drain(queue, len(all))
	}
	rounds := max(options.Adds/len(all), 1)
	for range max(rounds/10, 1) {
		round()
	}
	start := time.Now()
	for range rounds {
		round()
	}
	return Figures{"ns": perOp(start, rounds*len(all))}
}

// workerCycleFull: cycle of a queue with the default limiter, delays, and metrics in Prometheus' library; every key
// succeeds. controller-runtime sets the metrics provider when its priority queue is imported.
func workerCycleFull(options Options) Figures {
	limiter := workqueue.DefaultTypedControllerRateLimiter[string]()
	config := workqueue.TypedRateLimitingQueueConfig[string]{Name: "full"}
	queue, all := workqueue.NewTypedRateLimitingQueueWithConfig(limiter, config), keys(options.Keys)
	round := func() {
		for _, key := range all {
			queue.Add(key)
		}
		for range all {
			key, _ := queue.Get()
			queue.Forget(key)
			queue.Done(key)
		}
	}
	rounds := max(options.Adds/len(all), 1)
	for range max(rounds/10, 1) {
		round()
	}
	start := time.Now()
	for range rounds {
		round()
	}
	return Figures{"ns": perOp(start, rounds*len(all))}
}

// addDuplicate: adds of keys that are queued already. Len makes controller-runtime empty its buffer of adds.
func addDuplicate(options Options) Figures {
	queue, all := newQueue(options.Who), keys(options.Keys)
	round := func() {
		for _, key := range all {
			queue.Add(key)
		}
		if queue.Len() != len(all) {
			panic("a duplicate was queued")
		}
	}
	rounds := max(options.Adds/len(all), 1)
	for range max(rounds/10, 1) {
		round()
	}
	start := time.Now()
	for range rounds {
		round()
	}
	return Figures{"ns": perOp(start, rounds*len(all))}
}

// fillDrain: adds distinct keys to a new queue, then removes them.
func fillDrain(options Options) Figures {
	all := keys(options.Keys)
	runtime.GC()
	queue := newQueue(options.Who)
	start := time.Now()
	for _, key := range all {
		queue.Add(key)
	}
	if queue.Len() != len(all) {
		panic("a key is missing")
	}
	filled := time.Now()
	drain(queue, len(all))
	drained := perOp(filled, len(all))
	return Figures{"fill": float64(filled.Sub(start).Nanoseconds()) / float64(len(all)), "drain": drained}
}

// mixed: adds keys, of which a share is queued already, then removes all; time per add.
func mixed(options Options) Figures {
	all := keys(options.Keys)
	state, adds := draws(1), []string{}
	for fresh := 0; fresh < len(all); {
		if fresh > 0 && state.next(100) < options.Percent {
			adds = append(adds, all[state.next(fresh)])
			continue
		}
		adds = append(adds, all[fresh])
		fresh++
	}
	runtime.GC()
	queue := newQueue(options.Who)
	rounds := max(options.Adds/len(adds), 1)
	start := time.Now()
	for range rounds {
		for _, key := range adds {
			queue.Add(key)
		}
		drain(queue, len(all))
	}
	return Figures{"ns": perOp(start, rounds*len(adds))}
}

// contended: producers add keys drawn at random, consumers get and complete them, until all are complete; time per add.
func contended(options Options) Figures {
	queue, all := newQueue(options.Who), keys(options.Keys)
	share := options.Adds / options.Sides
	drawn := make([][]uint32, options.Sides)
	for i := range drawn {
		drawn[i] = choices(uint64(i), share, len(all))
	}
	runtime.GC()
	var ready, producers, consumers sync.WaitGroup
	var handedOut atomic.Int64
	begin := make(chan struct{})
	for side := range options.Sides {
		ready.Add(2)
		consumers.Go(func() {
			count := int64(0)
			ready.Done()
			<-begin
			for {
				key, shutdown := queue.Get()
				if shutdown {
					break
				}
				queue.Done(key)
				count++
			}
			handedOut.Add(count)
		})
		producers.Go(func() {
			ready.Done()
			<-begin
			for _, index := range drawn[side] {
				queue.Add(all[index])
			}
		})
	}
	ready.Wait()
	start := time.Now()
	close(begin)
	producers.Wait()
	queue.ShutDown()
	consumers.Wait()
	adds := share * options.Sides
	return Figures{"ns": perOp(start, adds), "handed-out": float64(handedOut.Load()) / float64(adds)}
}

// bytes: live heap of a queue that stores the keys, without the keys.
func bytes(options Options) Figures {
	all := keys(options.Keys)
	before := live()
	queue := newQueue(options.Who)
	for _, key := range all {
		queue.Add(key)
	}
	// Not counted: the string of a key, which is allocated before, and one pointer and length per key.
	figures := Figures{"bytes": float64(live()-before)/float64(queue.Len()) - float64(unsafe.Sizeof(all[0]))}
	runtime.KeepAlive(all)
	return figures
}

func live() int64 {
	runtime.GC()
	runtime.GC()
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return int64(stats.HeapAlloc)
}

// allocations: allocations of the steady cycle, per key.
func allocations(options Options) Figures {
	queue, all := newQueue(options.Who), keys(options.Keys)
	round := func() {
		for _, key := range all {
			queue.Add(key)
		}
		drain(queue, len(all))
	}
	const rounds = 1000
	for range rounds {
		round()
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for range rounds {
		round()
	}
	runtime.ReadMemStats(&after)
	return Figures{"allocations": float64(after.Mallocs-before.Mallocs) / float64(rounds*len(all))}
}
