package main

import (
	"errors"
	"testing/synctest"
	"time"

	"k8s.io/client-go/util/workqueue"
)

// The backoff of client-go's default limiter; the first line of a script may change it.
const (
	defaultBase = 5 * time.Millisecond
	defaultMax  = 1000 * time.Second
)

type queueRunner struct {
	// Created at the first line, which may be the configuration.
	queue workqueue.TypedRateLimitingInterface[string]
}

func newQueue() runner { return &queueRunner{} }

func (r *queueRunner) make(base, most time.Duration) {
	limiter := workqueue.NewTypedItemExponentialFailureRateLimiter[string](base, most)
	r.queue = workqueue.NewTypedRateLimitingQueue(limiter)
	synctest.Wait()
}

func (r *queueRunner) end() {
	if r.queue != nil {
		r.queue.ShutDown()
	}
}

func (r *queueRunner) answer(text string) answer {
	first := r.queue == nil
	l, op, err := parse(text)
	if err == nil && op == "config" {
		err = r.configure(l, first)
	}
	if r.queue == nil {
		r.make(defaultBase, defaultMax)
	}
	if err != nil {
		return failed(err)
	}
	answer := r.do(l, op)
	synctest.Wait()
	return answer
}

func (r *queueRunner) configure(l line, first bool) error {
	if !first {
		return errors.New("a config comes first")
	}
	base, err := l.millisOr("base_ms", defaultBase)
	if err != nil {
		return err
	}
	most, err := l.millisOr("max_ms", defaultMax)
	if err != nil {
		return err
	}
	r.make(base, most)
	return nil
}

func (r *queueRunner) do(l line, op string) answer {
	q := r.queue
	switch op {
	case "config":
		return ok
	case "get":
		return r.get()
	case "len":
		return number(q.Len())
	case "shutting_down":
		return flagged(q.ShuttingDown())
	case "shutdown":
		q.ShutDown()
		return ok
	case "advance":
		by, err := l.millis("ms")
		if err != nil {
			return failed(err)
		}
		time.Sleep(by)
		return ok
	}
	k, err := l.text("k")
	if err != nil {
		return failed(err)
	}
	switch op {
	case "add":
		q.Add(k)
	case "add_after":
		after, err := l.millis("ms")
		if err != nil {
			return failed(err)
		}
		q.AddAfter(k, after)
	case "add_rate_limited":
		q.AddRateLimited(k)
	case "done":
		q.Done(k)
	case "forget":
		q.Forget(k)
	case "requeues":
		return number(q.NumRequeues(k))
	default:
		return failed(errUnknown)
	}
	return ok
}

// get never blocks. Queue.Get would block on an open queue without a key.
func (r *queueRunner) get() answer {
	if r.queue.Len() == 0 && !r.queue.ShuttingDown() {
		return empty
	}
	k, shutdown := r.queue.Get()
	if shutdown {
		return isShutdown
	}
	return key(k)
}
