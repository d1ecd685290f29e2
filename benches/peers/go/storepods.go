package main

import (
	"fmt"

	"k8s.io/client-go/tools/cache"
)

const namespaces, podsANode = 100, 100

// Pod is a pod reduced to the fields that the indexes need: 104 bytes in Go and in Rust.
type Pod struct {
	key       string
	namespace string
	node      string
	labels    [2]string
	uid       string
	version   uint64
}

// fleet returns `count` pods at version 1: 100 per node, in the given number of namespaces, two labels each (200 pods
// per `app`, ten `stage`s), a unique uid. Objects with the same value share its string.
func fleet(count, namespaces int) []*Pod {
	texts := func(what string, count int) []string {
		all := make([]string, max(count, 1))
		for i := range all {
			all[i] = fmt.Sprintf("%s-%04d", what, i)
		}
		return all
	}
	names, nodes := texts("namespace", namespaces), nodes(count)
	apps, stages := texts("app=app", count/200), texts("stage=stage", 10)
	all := make([]*Pod, count)
	for i := range all {
		all[i] = &Pod{
			key:       fmt.Sprintf("%s/name-%010d", names[i%namespaces], i),
			namespace: names[i%namespaces],
			// A permutation, because 61 803 is coprime to powers of ten.
			node:    nodes[i*61_803%count/podsANode%len(nodes)],
			labels:  [2]string{apps[i/7%len(apps)], stages[i/3%len(stages)]},
			uid:     fmt.Sprintf("94e13965-e585-4342-a59a-%012d", i),
			version: 1,
		}
	}
	return all
}

func nodes(count int) []string {
	all := make([]string, max(count/podsANode, 1))
	for i := range all {
		all[i] = fmt.Sprintf("node-%05d", i)
	}
	return all
}

// updates are newer states of pods drawn at random.
func updates(pods []*Pod, count int, seed uint64) []*Pod {
	all := make([]*Pod, count)
	for i, index := range choices(seed, count, len(pods)) {
		all[i] = newer(pods[index], uint64(i)+2)
	}
	return all
}

func newer(pod *Pod, version uint64) *Pod {
	copied := *pod
	copied.version = version
	return &copied
}

// newStore builds a store with 0, 1, 2 or 4 indexes: 1 = namespace; 2 = namespace, node; 4 = namespace, node, labels,
// uid.
func newStore(indexes int) cache.Indexer {
	all := []struct {
		name   string
		values cache.IndexFunc
	}{
		{"namespace", func(object any) ([]string, error) { return []string{object.(*Pod).namespace}, nil }},
		{"node", func(object any) ([]string, error) { return []string{object.(*Pod).node}, nil }},
		{"label", func(object any) ([]string, error) { return object.(*Pod).labels[:], nil }},
		{"uid", func(object any) ([]string, error) { return []string{object.(*Pod).uid}, nil }},
	}
	indexers := cache.Indexers{}
	for _, index := range all[:indexes] {
		indexers[index.name] = index.values
	}
	return cache.NewIndexer(func(object any) (string, error) { return object.(*Pod).key, nil }, indexers)
}

func put(store cache.Store, pod *Pod) {
	if err := store.Update(pod); err != nil {
		panic(err)
	}
}

func filledStore(indexes int, pods []*Pod) cache.Indexer {
	store := newStore(indexes)
	for _, pod := range pods {
		put(store, pod)
	}
	return store
}

// readAll returns the sum of all versions, so that every object is read.
func readAll(objects []any) (sum uint64) {
	for _, object := range objects {
		sum += object.(*Pod).version
	}
	return sum
}
