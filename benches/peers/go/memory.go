package main

import (
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"strings"
)

// memory is a measurement of what the process has resident, in MiB.
type memory struct{ before float64 }

// watchMemory gives back what is not used, and forgets the peak so far.
func watchMemory() memory {
	runtime.GC()
	debug.FreeOSMemory()
	check(os.WriteFile("/proc/self/clear_refs", []byte("5"), 0))
	return memory{status("VmRSS:")}
}

// end gives what was resident before, and the most that was since.
func (m memory) end() (before, peak float64) { return m.before, status("VmHWM:") }

// tell tells what was resident before, and by how much the most that was since is more.
func (m memory) tell(figures Figures) {
	before, peak := m.end()
	figures["before"], figures["grown"] = before, peak-before
}

func status(name string) float64 {
	for line := range strings.Lines(string(must(os.ReadFile("/proc/self/status")))) {
		var kibibytes float64
		if _, err := fmt.Sscanf(line, name+" %f kB", &kibibytes); err == nil {
			return kibibytes / 1024
		}
	}
	panic("no " + name)
}
