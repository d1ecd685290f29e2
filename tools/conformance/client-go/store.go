package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"k8s.io/client-go/tools/cache"
)

type storeRunner struct {
	store cache.Indexer
}

// An object of a script, with its key.
type object struct {
	key     string
	members line
}

func newStore() runner {
	key := func(o any) (string, error) { return o.(*object).key, nil }
	return &storeRunner{cache.NewIndexer(key, cache.Indexers{})}
}

func (r *storeRunner) end() {}

// answer recovers from a panic: client-go panics if an index function fails. client-go releases its lock when the panic unwinds.
func (r *storeRunner) answer(text string) (answer answer) {
	defer func() {
		if panicked := recover(); panicked != nil {
			answer = failed(fmt.Errorf("panic: %v", panicked))
		}
	}()
	l, op, err := parse(text)
	if err != nil {
		return failed(err)
	}
	switch op {
	case "index", "values", "by_index":
		name, err := l.text("name")
		if err != nil {
			return failed(err)
		}
		return r.indexed(l, op, name)
	case "upsert", "delete", "get":
		k, err := l.text("k")
		if err != nil {
			return failed(err)
		}
		return r.keyed(l, op, k)
	case "replace":
		return r.replace(l)
	case "keys":
		return list(r.store.ListKeys())
	}
	return failed(errUnknown)
}

func (r *storeRunner) indexed(l line, op, name string) answer {
	switch op {
	case "index":
		values := func(o any) ([]string, error) { return o.(*object).members.texts(name) }
		if err := r.store.AddIndexers(cache.Indexers{name: values}); err != nil {
			return failed(err)
		}
		return ok
	case "by_index":
		v, err := l.text("v")
		if err != nil {
			return failed(err)
		}
		keys, err := r.store.IndexKeys(name, v)
		if err != nil {
			return missing
		}
		return list(keys)
	}
	return list(r.store.ListIndexFuncValues(name))
}

func (r *storeRunner) keyed(l line, op, k string) answer {
	switch op {
	case "upsert":
		members, err := l.object("o")
		if err != nil {
			return failed(err)
		}
		return done(r.store.Update(&object{k, members}))
	case "delete":
		return done(r.store.Delete(&object{key: k}))
	}
	o, exists, err := r.store.GetByKey(k)
	if err != nil {
		return failed(err)
	}
	if !exists {
		return absent
	}
	text, _ := json.Marshal(map[string]line{"o": o.(*object).members})
	return answer(text)
}

func (r *storeRunner) replace(l line) answer {
	items, err := l.object("items")
	if err != nil {
		return failed(err)
	}
	rv, err := l.text("rv")
	if err != nil {
		return failed(err)
	}
	var objects []any
	for k := range items {
		members, err := items.object(k)
		if err != nil {
			return failed(err)
		}
		objects = append(objects, &object{k, members})
	}
	return done(r.store.Replace(objects, rv))
}

func done(err error) answer {
	if err != nil {
		return failed(err)
	}
	return ok
}

// list sorts the strings, because client-go returns keys and values in no order.
func list(texts []string) answer {
	slices.Sort(texts)
	text, _ := json.Marshal(map[string][]string{"l": texts})
	return answer(text)
}

func (l line) object(name string) (line, error) {
	var members *line
	if err := json.Unmarshal(l[name], &members); err != nil || members == nil || *members == nil {
		return nil, fmt.Errorf("%q has to be an object", name)
	}
	return *members, nil
}

// The values of an index; empty if the object has no member of this name.
func (l line) texts(name string) ([]string, error) {
	member, given := l[name]
	if !given {
		return nil, nil
	}
	var texts *[]*string
	if err := json.Unmarshal(member, &texts); err != nil || texts == nil || slices.Contains(*texts, nil) {
		return nil, errors.New("the values of an index must be a list of strings")
	}
	var values []string
	for _, text := range *texts {
		values = append(values, *text)
	}
	return values, nil
}
