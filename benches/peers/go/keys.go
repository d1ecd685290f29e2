package main

import "fmt"

// keys are distinct strings of thirty bytes.
func keys(count int) []string {
	all := make([]string, count)
	for i := range all {
		all[i] = fmt.Sprintf("namespace-%04d/name-%010d", i%97, i)
	}
	return all
}

// draws are random numbers below `below`, the same in both programs: splitmix64, reduced by multiplication.
type draws uint64

func (state *draws) next(below int) int {
	*state += 0x9e3779b97f4a7c15
	x := uint64(*state)
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	x ^= x >> 31
	return int((x >> 32) * uint64(below) >> 32)
}

// choices are `count` draws in one slice.
func choices(seed uint64, count, below int) []uint32 {
	state := draws(seed)
	all := make([]uint32, count)
	for i := range all {
		all[i] = uint32(state.next(below))
	}
	return all
}
