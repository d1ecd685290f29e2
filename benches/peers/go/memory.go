package main

import (
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"strings"
)

// memory measures the resident memory of the process, in MiB.
type memory struct{ before float64 }

// watchMemory returns unused memory to the system, and resets the peak.
func watchMemory() memory {
	runtime.GC()
	debug.FreeOSMemory()
	check(os.WriteFile("/proc/self/clear_refs", []byte("5"), 0))
	return memory{status("VmRSS:")}
}

// end returns the resident memory at the start, and the peak since then.
func (m memory) end() (before, peak float64) { return m.before, status("VmHWM:") }

// record stores the resident memory at the start, and by how much the peak since then exceeds it.
func (m memory) record(figures Figures) {
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
