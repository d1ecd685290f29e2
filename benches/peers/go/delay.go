package main

import (
	"runtime"
	"sort"
	"time"
	"unsafe"

	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
)

func newDelaying(who string) workqueue.TypedDelayingInterface[string] {
	if who == "controller-runtime" {
		return priorityqueue.New[string]("")
	}
	return workqueue.NewTypedDelayingQueue[string]()
}

// far are distinct delays of one to two hours, in random order.
func far(count int) []time.Duration {
	all := make([]time.Duration, count)
	for i := range all {
		all[i] = time.Hour + time.Duration(i)*(time.Hour/time.Duration(count))
	}
	state := draws(2)
	for i := count - 1; i > 0; i-- {
		j := state.next(i + 1)
		all[i], all[j] = all[j], all[i]
	}
	return all
}

// delayAdd: distinct keys, each with a far deadline. client-go passes adds through a channel with a capacity of a
// thousand, so its queue's goroutine may not have received the last ones when the clock stops.
func delayAdd(options Options) Figures {
	all, delays := keys(options.Keys), far(options.Keys)
	runtime.GC()
	queue := newDelaying(options.Who)
	start := time.Now()
	for i, key := range all {
		queue.AddAfter(key, delays[i])
	}
	return Figures{"ns": perOp(start, len(all))}
}

// delayBytes: live heap of a queue with waiting keys, without the keys.
func delayBytes(options Options) Figures {
	all, delays := keys(options.Keys), far(options.Keys)
	before := live()
	queue := newDelaying(options.Who)
	for i, key := range all {
		queue.AddAfter(key, delays[i])
	}
	// Wait until the queue's goroutine has received all adds.
	time.Sleep(200 * time.Millisecond)
	// Without the key itself, as in bytes.
	figures := Figures{"bytes": float64(live()-before)/float64(len(all)) - float64(unsafe.Sizeof(all[0]))}
	runtime.KeepAlive(delays)
	runtime.KeepAlive(all)
	queue.ShutDown()
	return figures
}

// lateness: deadlines spread over two seconds and one consumer; measures the time from deadline to receipt.
func lateness(options Options) Figures {
	all := keys(options.Keys)
	const lead, spread = time.Second, 2 * time.Second
	state, offsets := draws(3), make(map[string]time.Duration, len(all))
	for _, key := range all {
		offsets[key] = lead + time.Duration(state.next(int(spread)))
	}
	runtime.GC()
	queue := newDelaying(options.Who)
	late := make([]time.Duration, 0, len(all))
	start := time.Now()
	for _, key := range all {
		queue.AddAfter(key, offsets[key]-time.Since(start))
	}
	if time.Since(start) > lead {
		panic("the adds took longer than the time until the first deadline")
	}
	for range all {
		key, _ := queue.Get()
		late = append(late, time.Since(start)-offsets[key])
		queue.Done(key)
	}
	return percentiles(late, time.Microsecond)
}

// handover: one goroutine waits; another then adds one key. Measures the time from add to receipt, one key at a time.
func handover(options Options) Figures {
	all := keys(options.Keys)
	queue := newQueue(options.Who)
	received := make(chan time.Time)
	go func() {
		for {
			key, shutdown := queue.Get()
			now := time.Now()
			if shutdown {
				return
			}
			queue.Done(key)
			received <- now
		}
	}()
	state, taken := draws(4), make([]time.Duration, 0, len(all))
	for _, key := range all {
		// Long enough for the worker to park, and at no fixed phase of a timer's ticks.
		time.Sleep(time.Duration(200_000 + state.next(1_000_000)))
		start := time.Now()
		queue.Add(key)
		taken = append(taken, (<-received).Sub(start))
	}
	return percentiles(taken, time.Microsecond)
}

func percentiles(all []time.Duration, unit time.Duration) Figures {
	sort.Slice(all, func(i, j int) bool { return all[i] < all[j] })
	at := func(permille int) float64 {
		return float64(all[min(len(all)*permille/1000, len(all)-1)]) / float64(unit)
	}
	return Figures{"p50": at(500), "p90": at(900), "p99": at(990), "p999": at(999), "max": at(1000)}
}
