package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"time"
)

// An answer is one line of JSON.
type answer string

const (
	ok         answer = `{}`
	empty      answer = `{"empty":true}`
	isShutdown answer = `{"shutdown":true}`
	absent     answer = `{"absent":true}`
	missing    answer = `{"error":true}`
)

func key(k string) answer {
	text, _ := json.Marshal(map[string]string{"k": k})
	return answer(text)
}

func number(n int) answer { return answer(fmt.Sprintf(`{"n":%d}`, n)) }

func nanos(d time.Duration) answer { return answer(fmt.Sprintf(`{"ns":%d}`, d.Nanoseconds())) }

func flagged(v bool) answer { return answer(fmt.Sprintf(`{"v":%t}`, v)) }

func failed(err error) answer {
	text, _ := json.Marshal(map[string]string{"error": err.Error()})
	return answer(text)
}

// A line is one object. A map keeps names case-sensitive: with a struct, encoding/json would accept "OP" for "op".
type line map[string]json.RawMessage

func parse(text string) (line, string, error) {
	var l line
	if err := json.Unmarshal([]byte(text), &l); err != nil {
		return nil, "", err
	}
	op, err := l.text("op")
	return l, op, err
}

func (l line) text(name string) (string, error) {
	// Decoding null into a string would leave it unchanged, so use a pointer.
	var text *string
	if err := json.Unmarshal(l[name], &text); err != nil || text == nil {
		return "", fmt.Errorf("%q has to be a string", name)
	}
	return *text, nil
}

func (l line) number(name string, most uint64) (uint64, error) {
	var n *uint64
	if err := json.Unmarshal(l[name], &n); err != nil || n == nil || *n > most {
		return 0, fmt.Errorf("%q has to be a whole number of at most %d", name, most)
	}
	return *n, nil
}

// Milliseconds that fit into a time.Duration.
func (l line) millis(name string) (time.Duration, error) {
	n, err := l.number(name, math.MaxInt64/uint64(time.Millisecond))
	return time.Duration(n) * time.Millisecond, err
}

func (l line) millisOr(name string, otherwise time.Duration) (time.Duration, error) {
	if _, given := l[name]; !given {
		return otherwise, nil
	}
	return l.millis(name)
}

var errUnknown = errors.New("no such operation")
