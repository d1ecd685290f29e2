package main

import (
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// sink keeps the compiler from removing reads.
var sink atomic.Uint64

// storeAdd: adds distinct objects to a new store, and repeats this with another new store until `adds` adds are made.
func storeAdd(options Options) Figures {
	pods, rounds, taken := fleet(options.Keys, namespaces), max(options.Adds/options.Keys, 1), time.Duration(0)
	for range rounds {
		runtime.GC()
		store := newStore(options.Indexes)
		start := time.Now()
		for _, pod := range pods {
			if err := store.Add(pod); err != nil {
				panic(err)
			}
		}
		taken += time.Since(start)
		runtime.KeepAlive(store)
	}
	return Figures{"ns": float64(taken.Nanoseconds()) / float64(rounds*len(pods))}
}

// storeUpdate: newer states of objects drawn at random; no index value changes.
func storeUpdate(options Options) Figures {
	pods := fleet(options.Keys, namespaces)
	store, updates := filledStore(options.Indexes, pods), updates(pods, options.Adds, 1)
	runtime.GC()
	start := time.Now()
	for _, pod := range updates {
		put(store, pod)
	}
	return Figures{"ns": perOp(start, len(updates))}
}

// storeGet: concurrent point reads by several goroutines, each object read; wall time divided by the number of reads.
func storeGet(options Options) Figures {
	pods := fleet(options.Keys, namespaces)
	store, share := filledStore(options.Indexes, pods), options.Adds/options.Sides
	drawn := make([][]uint32, options.Sides)
	for side := range drawn {
		drawn[side] = choices(uint64(side), share, len(pods))
	}
	runtime.GC()
	var ready, done sync.WaitGroup
	begin := make(chan struct{})
	for side := range options.Sides {
		ready.Add(1)
		done.Go(func() {
			sum := uint64(0)
			ready.Done()
			<-begin
			for _, index := range drawn[side] {
				object, exists, err := store.GetByKey(pods[index].key)
				if !exists || err != nil {
					panic("an object is missing")
				}
				sum += object.(*Pod).version
			}
			if sum != uint64(share) {
				panic("an object is not at version 1")
			}
		})
	}
	ready.Wait()
	start := time.Now()
	close(begin)
	done.Wait()
	return Figures{"ns": perOp(start, share*options.Sides)}
}

// storeByIndex: looks up the hundred objects of a node and reads each.
func storeByIndex(options Options) Figures {
	store, nodes := filledStore(options.Indexes, fleet(options.Keys, namespaces)), nodes(options.Keys)
	drawn := choices(2, options.Adds, len(nodes))
	runtime.GC()
	const most = 3 * time.Second
	start, lookups := time.Now(), 0
	for lookups < len(drawn) && (lookups%10 != 0 || time.Since(start) < most) {
		objects, err := store.ByIndex("node", nodes[drawn[lookups]])
		if err != nil || len(objects) != podsANode || readAll(objects) != podsANode {
			panic("a node does not have a hundred pods at version 1")
		}
		lookups++
	}
	return Figures{"ns": perOp(start, lookups)}
}

// storeList: after a write, takes a view of all objects (`snapshot`, µs), takes a view and iterates over it (`walk`, ns
// per object), or takes a view and reads each object (`read`).
func storeList(options Options) Figures {
	pods := fleet(options.Keys, namespaces)
	store, version := filledStore(options.Indexes, pods), uint64(1)
	runtime.GC()
	times := func(work func()) float64 {
		taken := time.Duration(0)
		for range options.Adds {
			version++
			put(store, newer(pods[version%uint64(len(pods))], version))
			start := time.Now()
			work()
			taken += time.Since(start)
		}
		return float64(taken.Nanoseconds()) / float64(options.Adds)
	}
	objects := float64(len(pods))
	snapshot := times(func() { sink.Add(uint64(len(store.List()))) })
	walk := times(func() {
		count := uint64(0)
		for _, object := range store.List() {
			if object != nil {
				count++
			}
		}
		sink.Add(count)
	})
	read := times(func() { sink.Add(readAll(store.List())) })
	return Figures{"snapshot": snapshot / 1e3, "walk": walk / objects, "read": read / objects}
}

// storeBeside: updates by one goroutine, alone and beside one that repeatedly lists all objects. A write is timed from
// the end of the previous one.
func storeBeside(options Options) Figures {
	pods := fleet(options.Keys, namespaces)
	store, updates := filledStore(options.Indexes, pods), updates(pods, 2*options.Adds, 1)
	runtime.GC()
	write := func(updates []*Pod) []time.Duration {
		gaps, most := make([]time.Duration, 0, len(updates)), time.Duration(options.Seconds)*time.Second
		begin := time.Now()
		last := time.Duration(0)
		for _, pod := range updates {
			put(store, pod)
			now := time.Since(begin)
			gaps = append(gaps, now-last)
			last = now
			if now > most {
				break
			}
		}
		return gaps
	}
	alone := write(updates[:options.Adds])
	var lists atomic.Int64
	var stop atomic.Bool
	var lister sync.WaitGroup
	lister.Go(func() {
		for !stop.Load() {
			sink.Add(uint64(len(store.List())))
			lists.Add(1)
		}
	})
	for lists.Load() < 2 {
		runtime.Gosched()
	}
	before := lists.Load()
	beside := write(updates[options.Adds:])
	taken := lists.Load() - before
	stop.Store(true)
	lister.Wait()
	mean := func(gaps []time.Duration) (seconds, us float64) {
		total := time.Duration(0)
		for _, gap := range gaps {
			total += gap
		}
		return total.Seconds(), total.Seconds() * 1e6 / float64(len(gaps))
	}
	_, alone1 := mean(alone)
	seconds, us := mean(beside)
	figures := percentiles(beside, time.Microsecond)
	figures["alone"], figures["us"], figures["times"] = alone1, us, us/alone1
	figures["lists"] = float64(taken) / seconds
	return figures
}

// storeReplace: complete lists into a full store, beside one goroutine that repeatedly gets objects drawn at random.
// `percent` of the objects are newer in each list. After each list the reader continues for the same time without a
// writer: `quiet` is the longest delay in that time. Figures are the medians of all lists.
func storeReplace(options Options) Figures {
	const phases, end = 3, -1
	pods := fleet(options.Keys, namespaces)
	store := filledStore(options.Indexes, pods)
	var phase, seen atomic.Int64
	var reader sync.WaitGroup
	var all [phases][]stalls
	reader.Go(func() {
		// The kernel's statistics are per thread.
		runtime.LockOSThread()
		drawn, at := draws(7), int64(0)
		var noted stalls
		noted.begin()
		for {
			if now := phase.Load(); now != at {
				all[at%phases] = append(all[at%phases], noted)
				noted.begin()
				at = now
				seen.Store(at)
			}
			if at == end {
				return
			}
			if _, exists, _ := store.GetByKey(pods[drawn.next(len(pods))].key); !exists {
				panic("an object is missing")
			}
			noted.note()
		}
	})
	enter := func(to int) {
		phase.Store(int64(to))
		for seen.Load() != int64(to) {
			runtime.Gosched()
		}
	}
	drawn, totals := draws(6), []float64{}
	for round := range max(options.Adds, 1) {
		list := make([]any, len(pods))
		for i, pod := range pods {
			version := uint64(1)
			if drawn.next(100) < options.Percent {
				version = uint64(round) + 2
			}
			list[i] = newer(pod, version)
		}
		runtime.GC()
		enter(round*phases + 1)
		start := time.Now()
		check(store.Replace(list, "2"))
		total := time.Since(start)
		enter(round*phases + 2)
		time.Sleep(total)
		enter((round + 1) * phases)
		totals = append(totals, total.Seconds()*1e3)
	}
	enter(end)
	reader.Wait()
	micros := func(all []stalls, which func(stalls) time.Duration) float64 {
		values := make([]float64, len(all))
		for i, one := range all {
			values[i] = float64(which(one).Nanoseconds()) / 1e3
		}
		return median(values)
	}
	blocked := func(one stalls) time.Duration { return one.blocked }
	return Figures{
		"total":   median(totals),
		"blocked": micros(all[1], blocked),
		"slowest": micros(all[1], func(one stalls) time.Duration { return one.slowest }),
		"quiet":   micros(all[2], blocked),
	}
}

func median(all []float64) float64 {
	slices.Sort(all)
	return all[len(all)/2]
}

// stalls measures the time in which a thread makes no progress. Time in which the thread is runnable and the kernel
// runs another thread does not count: the load of the machine causes it, not the store.
type stalls struct {
	start            time.Time
	last             time.Duration
	queued           time.Duration
	slowest, blocked time.Duration
}

func (s *stalls) begin() {
	*s = stalls{start: time.Now(), queued: queued()}
	s.last = time.Since(s.start)
}

func (s *stalls) note() {
	now := time.Since(s.start)
	gap := now - s.last
	s.last = now
	s.slowest = max(s.slowest, gap)
	// Shorter gaps are not examined, because reading the kernel's statistics takes longer.
	if gap <= 20*time.Microsecond {
		s.blocked = max(s.blocked, gap)
		return
	}
	queued := queued()
	s.blocked = max(s.blocked, gap-(queued-s.queued))
	s.queued = queued
	s.last = time.Since(s.start)
}

// queued is how long this thread has waited for a core so far.
func queued() time.Duration {
	stat, err := os.ReadFile("/proc/thread-self/schedstat")
	if err != nil {
		panic(err)
	}
	var ran, waited int64
	if _, err := fmt.Sscan(string(stat), &ran, &waited); err != nil {
		panic(err)
	}
	return time.Duration(waited)
}

// storeBytes: live heap of a store, without the objects.
func storeBytes(options Options) Figures {
	pods := fleet(options.Keys, namespaces)
	// The first store allocates memory that the process needs only once; it does not count.
	filledStore(options.Indexes, pods[:1])
	debug.FreeOSMemory()
	before := live()
	store := filledStore(options.Indexes, pods)
	figures := Figures{"bytes": float64(live()-before) / float64(len(pods))}
	runtime.KeepAlive(pods)
	runtime.KeepAlive(store)
	return figures
}
