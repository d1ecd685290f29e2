package main

import (
	"fmt"
	"os"
	"runtime"
	"strings"
	"syscall"
	"time"

	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
)

// idle: queues with a limiter, each with one key that waits for an hour. Measures their CPU time, goroutines and
// threads.
func idle(options Options) Figures {
	threads, tasks := countThreads(), runtime.NumGoroutine()
	held := make([]workqueue.TypedRateLimitingInterface[string], 0, options.Keys)
	for range options.Keys {
		var queue workqueue.TypedRateLimitingInterface[string]
		if options.Who == "controller-runtime" {
			queue = priorityqueue.New[string]("")
		} else {
			queue = workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[string]())
		}
		queue.AddAfter("namespace-0000/name-0000000000", time.Hour)
		held = append(held, queue)
	}
	// Creating the queues causes background work; it is over before the clock starts.
	runtime.GC()
	time.Sleep(time.Second)
	before := cpu()
	time.Sleep(time.Duration(options.Seconds) * time.Second)
	used := cpu() - before
	figures := Figures{
		"cpu":     float64(used.Milliseconds()) / float64(options.Seconds),
		"tasks":   float64(runtime.NumGoroutine() - tasks),
		"threads": float64(countThreads() - threads),
	}
	runtime.KeepAlive(held)
	return figures
}

func cpu() time.Duration {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		panic(err)
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

// countThreads reads the number of threads of this process.
func countThreads() int {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		panic(err)
	}
	for line := range strings.Lines(string(status)) {
		var count int
		if _, err := fmt.Sscanf(line, "Threads: %d", &count); err == nil {
			return count
		}
	}
	panic("no count of threads")
}
