package main

import (
	"fmt"
	"time"

	"golang.org/x/time/rate"
	"k8s.io/client-go/util/workqueue"
)

// limitDefault: failures of one key after the other, repeatedly; no key is forgotten.
func limitDefault(options Options) Figures {
	limiter, all := workqueue.DefaultTypedControllerRateLimiter[string](), keys(options.Keys)
	round := func() {
		for _, key := range all {
			limiter.When(key)
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

// limitBucket: checks for a token, with the time as an argument. Half a token accrues between two checks: after the
// burst every other check is refused.
func limitBucket(options Options) Figures {
	const perSecond, burst, step = 1_000_000, 1_000, 500 * time.Nanosecond
	bucket, granted := rate.NewLimiter(perSecond, burst), 0
	start := time.Now()
	now := start
	for range options.Adds {
		now = now.Add(step)
		if bucket.AllowN(now, 1) {
			granted++
		}
	}
	figures := Figures{"ns": perOp(start, options.Adds)}
	// The limiter counts in floating point, so the number of tokens is not exact.
	if due := options.Adds/2 + burst; granted < due*99/100 || granted > due*101/100 {
		panic(fmt.Sprintf("%d were granted, not %d", granted, due))
	}
	return figures
}
