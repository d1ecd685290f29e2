package main

import (
	"runtime"
	"sync/atomic"
	"time"
)

// latency: the time from add to receipt, at a fixed rate of adds. The producer spins, because no sleep is as short as
// the gap between two adds. The latency of an add that is late counts from the time when it was due.
func latency(options Options) Figures {
	all := keys(options.Keys)
	queue := newQueue(options.Who)
	index := make(map[string]int, len(all))
	for i, key := range all {
		index[key] = i
	}
	due, taken := make([]time.Time, len(all)), make([]time.Duration, len(all))
	var received atomic.Int64
	for range options.Sides {
		go func() {
			for {
				key, shutdown := queue.Get()
				if shutdown {
					return
				}
				i := index[key]
				taken[i] = time.Since(due[i])
				queue.Done(key)
				received.Add(1)
			}
		}()
	}
	gap := time.Second / time.Duration(options.Rate)
	start := time.Now()
	for i, key := range all {
		due[i] = start.Add(time.Duration(i) * gap)
		for time.Until(due[i]) > 0 {
			runtime.Gosched()
		}
		queue.Add(key)
	}
	for received.Load() < int64(len(all)) {
		time.Sleep(time.Millisecond)
	}
	return percentiles(taken, time.Microsecond)
}
