// Answers the scripts of `conformance` with client-go: it reads the same lines and prints answers of the same form.
//
//	go run . [-many] queue|limiter|store < script > answers
//
// Each script runs in a bubble of testing/synctest: time is virtual, and the queue's goroutines settle after each line
// before the next one is read. So an answer depends only on the script.
package main

import (
	"bufio"
	"flag"
	"fmt"
	"os"
	"testing"
	"testing/synctest"
)

// A runner answers the lines of one script, in order.
type runner interface {
	answer(line string) answer
	// end stops every goroutine; otherwise the bubble would wait for it.
	end()
}

func main() {
	many := flag.Bool("many", false, "read several scripts; an empty line ends each script and its answers")
	flag.Parse()
	var start func() runner
	switch flag.Arg(0) {
	case "queue":
		start = newQueue
	case "limiter":
		start = newLimiter
	case "store":
		start = newStore
	default:
		refuse("usage: client-go [-many] queue|limiter|store < script > answers")
	}
	// The testing package prints to os.Stdout; redirect that to stderr.
	out := bufio.NewWriter(os.Stdout)
	os.Stdout = os.Stderr
	os.Args = os.Args[:1]
	run := func(t *testing.T) {
		in := bufio.NewScanner(os.Stdin)
		in.Buffer(nil, 1<<26)
		for more := true; more; {
			var script []string
			script, more = next(in, *many)
			if len(script) == 0 && !more {
				break
			}
			var answers []answer
			synctest.Test(t, func(*testing.T) { answers = play(start(), script) })
			for _, answer := range answers {
				fmt.Fprintln(out, answer)
			}
			if *many && more {
				fmt.Fprintln(out)
			}
		}
		if err := in.Err(); err != nil {
			t.Fatal(err)
		}
		if err := out.Flush(); err != nil {
			t.Fatal(err)
		}
	}
	// A bubble needs a *testing.T. testing.Main provides one to a program that is not a test binary.
	all := func(string, string) (bool, error) { return true, nil }
	testing.Main(all, []testing.InternalTest{{Name: "answers", F: run}}, nil, nil)
}

// next reads one script, and returns whether another may follow.
func next(in *bufio.Scanner, many bool) (script []string, more bool) {
	for in.Scan() {
		if many && in.Text() == "" {
			return script, true
		}
		script = append(script, in.Text())
	}
	return script, false
}

func play(r runner, script []string) (answers []answer) {
	for _, line := range script {
		answers = append(answers, r.answer(line))
	}
	r.end()
	return answers
}

func refuse(why string) {
	fmt.Fprintln(os.Stderr, why)
	os.Exit(2)
}
