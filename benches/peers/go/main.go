// Command peers-go runs one measurement on client-go's work queue, limiters and store, on controller-runtime's priority
// queue or on x/time/rate, and prints the figures as one JSON object. The Rust program beside it runs the same
// measurements on the Rust libraries, with the same names, flags, keys and draws; `cargo xtask peers` runs both
// alternately.
//
// Keys are strings of 30 bytes. Keys and random draws are generated before the clock starts.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"sort"
)

// Figures are the results of a run, by name.
type Figures map[string]float64

// Options are the flags. They are the same for every run; a run ignores those it does not need.
type Options struct {
	Who     string
	Keys    int
	Adds    int
	Sides   int
	Percent int
	Indexes int
	Rate    int
	Seconds int
	Scale   int
	Speed   float64
	Work    int
	Trace   string
}

var runs = map[string]func(Options) Figures{
	"cycle":                 cycle,
	"cycle-priority":        cyclePriority,
	"worker-cycle":          cycle,
	"worker-cycle-full":     workerCycleFull,
	"add-duplicate":         addDuplicate,
	"fill-drain":            fillDrain,
	"mixed":                 mixed,
	"contended":             contended,
	"latency":               latency,
	"bytes":                 bytes,
	"allocations":           allocations,
	"delay-add":             delayAdd,
	"delay-bytes":           delayBytes,
	"lateness":              lateness,
	"handover":              handover,
	"idle":                  idle,
	"limit-default":         limitDefault,
	"limit-bucket":          limitBucket,
	"store-add":             storeAdd,
	"store-update":          storeUpdate,
	"store-get":             storeGet,
	"store-by-index":        storeByIndex,
	"store-list":            storeList,
	"store-beside":          storeBeside,
	"store-replace":         storeReplace,
	"store-bytes":           storeBytes,
	"store-operations":      storeOperations,
	"store-readers":         storeReaders,
	"cluster":               cluster,
	"controller-throughput": controllerThroughput,
	"controller-paced":      controllerPaced,
	"informer-events":       informerEvents,
	"informer-slow-handler": informerSlowHandler,
	"informer-late-join":    informerLateJoin,
	"informer-relist":       informerRelist,
	"controller-overload":   controllerOverload,
}

func main() {
	if len(os.Args) < 2 || runs[os.Args[1]] == nil {
		names := make([]string, 0, len(runs))
		for name := range runs {
			names = append(names, name)
		}
		sort.Strings(names)
		fmt.Fprintln(os.Stderr, "usage: peers-go RUN [flags], RUN one of", names)
		os.Exit(2)
	}
	var options Options
	flags := flag.NewFlagSet(os.Args[1], flag.ExitOnError)
	flags.StringVar(&options.Who, "who", "client-go", "client-go, controller-runtime or time-rate")
	flags.IntVar(&options.Keys, "keys", 1000, "distinct keys or objects")
	flags.IntVar(&options.Adds, "adds", 1_000_000, "adds, failures or checks in total")
	flags.IntVar(&options.Sides, "sides", 1, "number of producers, and of consumers")
	flags.IntVar(&options.Percent, "percent", 0, "share of adds of keys that are queued already, or of objects that are newer in a list")
	flags.IntVar(&options.Indexes, "indexes", 2, "indexes of a store: 0, 1, 2 or 4")
	flags.IntVar(&options.Rate, "rate", 50_000, "adds per second")
	flags.IntVar(&options.Seconds, "seconds", 10, "duration of the measurement in seconds")
	flags.IntVar(&options.Work, "work", 0, "duration of a reconcile or of a handler call, in milliseconds")
	flags.Float64Var(&options.Speed, "speed", 0, "multiple of the recorded speed; 0: as fast as the informers process the events")
	flags.IntVar(&options.Scale, "scale", 1, "copies of the recorded cluster")
	flags.StringVar(&options.Trace, "trace", "", "the recorded cluster")
	_ = flags.Parse(os.Args[2:])
	if err := json.NewEncoder(os.Stdout).Encode(runs[os.Args[1]](options)); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
