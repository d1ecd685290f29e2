package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/klauspost/compress/zstd"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
)

// resources of the recorded cluster. Their order has no meaning.
const (
	pods = iota
	services
	nodesOf
	deployments
	replicasets
	endpointslices
	resources
)

var resourceNames = [resources]string{"pods", "services", "nodes", "deployments", "replicasets", "endpointslices"}

// Recorded is an object of one of the resources.
type Recorded struct {
	metav1.TypeMeta
	metav1.ObjectMeta
	key string
	// When the object reached this state in the cluster, if that is measured.
	happened int64
	// Of a ReplicaSet or a Service: when its key was queued, and for which change.
	queued *addition
	// Of a pod.
	owner, ownerKey string
	ownerQueued     *addition
	ready           bool
	address         string
	// For a Service.
	selector labels.Set
	// Of a ReplicaSet: the counts in its status.
	settled counts
	// Of an EndpointSlice: the addresses of ready pods, and the Service it belongs to.
	service   string
	addresses []string
	// Of a generated object: its number among all objects, and its version.
	number, version uint32
}

// counts are the number of replicas and the number of ready replicas.
type counts struct{ all, ready int }

func (r *Recorded) DeepCopyObject() runtime.Object {
	copied := *r
	copied.ObjectMeta = *r.ObjectMeta.DeepCopy()
	return &copied
}

// RecordedList is a list of one of the resources.
type RecordedList struct {
	metav1.TypeMeta
	metav1.ListMeta
	Items []*Recorded
}

func (l *RecordedList) DeepCopyObject() runtime.Object {
	copied := *l
	copied.Items = slices.Clone(l.Items)
	return &copied
}

// happening is one event of the trace.
type happening struct {
	resource int
	at       time.Duration
	event    watch.Event
}

type trace struct {
	lists    [resources]*RecordedList
	timeline []happening
	// By resource: the number of events without bookmarks, and the last version.
	handled  [resources]int64
	versions [resources]string
	events   int
	copies   int
	// By key, for each of the two controllers.
	counted, collected moments
	// The final state of the cluster.
	replicas  map[string]counts
	selecting []string
	endpoints map[string][]string
}

// addition records when a key was queued, and when the first change happened after which no reconcile has started. Both
// are in nanoseconds of the clock; 0 means not queued, or no such change.
type addition struct{ since, changed atomic.Int64 }

// moments are the additions of a controller's keys, allocated before the clock starts.
type moments map[string]*addition

func (m moments) of(key string) *addition {
	if m[key] == nil {
		m[key] = &addition{}
	}
	return m[key]
}

func readTrace(path string, copies int) *trace {
	file := must(os.Open(path))
	defer file.Close()
	decoder := must(zstd.NewReader(file))
	defer decoder.Close()
	lines := bufio.NewScanner(decoder)
	lines.Buffer(nil, 1<<30)
	recorded := &trace{
		copies: copies, replicas: map[string]counts{}, endpoints: map[string][]string{}, counted: moments{}, collected: moments{},
	}
	for lines.Scan() {
		var line struct {
			T              float64
			Resource, Type string
			Object         json.RawMessage
		}
		check(json.Unmarshal(lines.Bytes(), &line))
		at := time.Duration(line.T * float64(time.Second))
		recorded.take(slices.Index(resourceNames[:], line.Resource), at, line.Type, line.Object)
	}
	check(lines.Err())
	return recorded
}

// copied returns the object in a renamed namespace, as `replay --scale` does. The versions of the copies are distinct
// and stay between the same neighbours. Cluster-scoped objects, the nodes, are not copied.
func (t *trace) copied(object *Recorded, resource, number int) *Recorded {
	copied := *object
	copied.ResourceVersion = t.version(object.ResourceVersion, number)
	if t.copies > 1 {
		if resource == nodesOf {
			if number > 0 {
				return nil
			}
			return &copied
		}
		suffix := fmt.Sprintf("-copy-%d", number)
		renamed := func(key string) string {
			if key == "" {
				return ""
			}
			namespace, name, _ := strings.Cut(key, "/")
			return namespace + suffix + "/" + name
		}
		copied.Namespace += suffix
		copied.UID += types.UID(suffix)
		copied.key, copied.ownerKey, copied.service = renamed(object.key), renamed(object.ownerKey), renamed(object.service)
		if copied.owner != "" {
			copied.owner += suffix
		}
	}
	if copied.ownerKey != "" {
		copied.ownerQueued = t.counted.of(copied.ownerKey)
	}
	switch resource {
	case replicasets:
		copied.queued = t.counted.of(copied.key)
	case services:
		copied.queued = t.collected.of(copied.key)
	}
	return &copied
}

func (t *trace) version(version string, number int) string {
	if t.copies == 1 {
		return version
	}
	return strconv.FormatUint(must(strconv.ParseUint(version, 10, 64))*uint64(t.copies)+uint64(number), 10)
}

func (t *trace) take(resource int, at time.Duration, kind string, object json.RawMessage) {
	switch kind {
	case "LIST", "FINAL":
		var list struct {
			Metadata metav1.ListMeta
			Items    []json.RawMessage
		}
		check(json.Unmarshal(object, &list))
		items := make([]*Recorded, 0, len(list.Items)*t.copies)
		decoded := make([]*Recorded, 0, len(list.Items))
		for _, item := range list.Items {
			decoded = append(decoded, decode(item))
		}
		for number := range t.copies {
			for _, item := range decoded {
				if copied := t.copied(item, resource, number); copied != nil {
					items = append(items, copied)
				}
			}
		}
		if kind == "LIST" {
			list.Metadata.ResourceVersion = t.version(list.Metadata.ResourceVersion, t.copies-1)
			t.lists[resource] = &RecordedList{ListMeta: list.Metadata, Items: items}
			t.versions[resource] = list.Metadata.ResourceVersion
		} else {
			t.settle(resource, items)
		}
	case "BOOKMARK":
		decoded := decode(object)
		decoded.ResourceVersion = t.version(decoded.ResourceVersion, t.copies-1)
		t.versions[resource] = decoded.ResourceVersion
		t.timeline = append(t.timeline, happening{resource, at, watch.Event{Type: watch.Bookmark, Object: decoded}})
	default:
		decoded := decode(object)
		for number := range t.copies {
			copied := t.copied(decoded, resource, number)
			if copied == nil {
				continue
			}
			t.versions[resource] = copied.ResourceVersion
			t.timeline = append(t.timeline, happening{resource, at, watch.Event{Type: watch.EventType(kind), Object: copied}})
			t.handled[resource]++
			t.events++
		}
	}
}

func (t *trace) settle(resource int, items []*Recorded) {
	for _, item := range items {
		switch resource {
		case replicasets:
			t.replicas[item.key] = item.settled
		case services:
			if len(item.selector) > 0 {
				t.selecting = append(t.selecting, item.key)
			}
		case endpointslices:
			if item.service != "" {
				t.endpoints[item.service] = append(t.endpoints[item.service], item.addresses...)
			}
		}
	}
}

func decode(text json.RawMessage) *Recorded {
	var wire struct {
		Metadata struct {
			Name, Namespace, UID, ResourceVersion string
			DeletionTimestamp                     *metav1.Time
			Labels                                map[string]string
			OwnerReferences                       []metav1.OwnerReference
		}
		Spec   struct{ Selector json.RawMessage }
		Status struct {
			PodIP                   string
			Conditions              []struct{ Type, Status string }
			Replicas, ReadyReplicas int
		}
		Endpoints []struct {
			Addresses  []string
			Conditions struct{ Ready *bool }
		}
	}
	check(json.Unmarshal(text, &wire))
	meta := wire.Metadata
	object := &Recorded{
		ObjectMeta: metav1.ObjectMeta{
			Name: meta.Name, Namespace: meta.Namespace, UID: types.UID(meta.UID), ResourceVersion: meta.ResourceVersion,
			Labels: meta.Labels, DeletionTimestamp: meta.DeletionTimestamp,
		},
		address: wire.Status.PodIP,
		settled: counts{wire.Status.Replicas, wire.Status.ReadyReplicas},
	}
	object.key = cache.MetaObjectToName(object).String()
	for _, owner := range meta.OwnerReferences {
		if owner.Controller != nil && *owner.Controller && owner.Kind == "ReplicaSet" {
			object.owner, object.ownerKey = string(owner.UID), meta.Namespace+"/"+owner.Name
		}
	}
	for _, condition := range wire.Status.Conditions {
		object.ready = object.ready || condition.Type == "Ready" && condition.Status == "True"
	}
	// A Deployment's selector has another form; no controller uses it.
	_ = json.Unmarshal(wire.Spec.Selector, &object.selector)
	if service := meta.Labels["kubernetes.io/service-name"]; service != "" {
		object.service = meta.Namespace + "/" + service
	}
	for _, endpoint := range wire.Endpoints {
		// Kubernetes treats an endpoint without a ready condition as ready.
		if endpoint.Conditions.Ready == nil || *endpoint.Conditions.Ready {
			object.addresses = append(object.addresses, endpoint.Addresses...)
		}
	}
	return object
}
