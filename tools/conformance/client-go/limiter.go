package main

import (
	"encoding/json"
	"errors"
	"math"

	"k8s.io/client-go/util/workqueue"
)

type limiterRunner struct {
	limiter workqueue.TypedRateLimiter[string]
}

func newLimiter() runner {
	return &limiterRunner{workqueue.NewTypedItemExponentialFailureRateLimiter[string](defaultBase, defaultMax)}
}

func (r *limiterRunner) end() {}

func (r *limiterRunner) answer(text string) answer {
	l, op, err := parse(text)
	if err != nil {
		return failed(err)
	}
	if op == "config" {
		limiter, err := limiterOf(l)
		if err != nil {
			return failed(err)
		}
		r.limiter = limiter
		return ok
	}
	k, err := l.text("k")
	if err != nil {
		return failed(err)
	}
	switch op {
	case "when":
		return nanos(r.limiter.When(k))
	case "forget":
		r.limiter.Forget(k)
		return ok
	case "requeues":
		return number(r.limiter.NumRequeues(k))
	}
	return failed(errUnknown)
}

func limiterOf(l line) (workqueue.TypedRateLimiter[string], error) {
	kind, err := l.text("kind")
	if err != nil {
		return nil, err
	}
	switch kind {
	case "exponential":
		base, baseErr := l.millis("base_ms")
		most, mostErr := l.millis("max_ms")
		if err := errors.Join(baseErr, mostErr); err != nil {
			return nil, err
		}
		return workqueue.NewTypedItemExponentialFailureRateLimiter[string](base, most), nil
	case "fast_slow":
		fast, fastErr := l.millis("fast_ms")
		slow, slowErr := l.millis("slow_ms")
		attempts, attemptsErr := l.number("fast", math.MaxUint32)
		if err := errors.Join(fastErr, slowErr, attemptsErr); err != nil {
			return nil, err
		}
		return workqueue.NewTypedItemFastSlowRateLimiter[string](fast, slow, int(attempts)), nil
	case "max_of":
		return maxOf(l["of"])
	}
	return nil, errors.New("no such kind of limiter")
}

func maxOf(text json.RawMessage) (workqueue.TypedRateLimiter[string], error) {
	var of *[]line
	if err := json.Unmarshal(text, &of); err != nil || of == nil {
		return nil, errors.New(`"of" has to be a list of limiters`)
	}
	var limiters []workqueue.TypedRateLimiter[string]
	for _, l := range *of {
		limiter, err := limiterOf(l)
		if err != nil {
			return nil, err
		}
		limiters = append(limiters, limiter)
	}
	return workqueue.NewTypedMaxOfRateLimiter(limiters...), nil
}
