package state

import (
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2"
)

// Shares of the server's memory flag. What is left over is for queues, the Go runtime and network buffers.
const (
	overlayPercent   = 45
	cachePercent     = 25
	operatorsPercent = 20

	// minOverlayBytes keeps a tiny memory flag from making every put an early barrier.
	minOverlayBytes = 4 << 20
	// softPercent of the limit is where clean entries are evicted and early barriers asked for: what arrives while a flush runs
	// has to fit into the rest.
	softPercent = 60

	fileCacheShards = 4
	// fileCacheFiles is the number of open SST readers that all stores share.
	fileCacheFiles = 1024
)

// Budget counts bytes on the heap against a limit. All methods may be called by any goroutine, and on a nil Budget, which has no
// limit.
type Budget struct {
	limit  int64
	used   atomic.Int64
	stores atomic.Int64
}

// NewBudget returns a budget of limit bytes; 0 means without limit.
func NewBudget(limit int64) *Budget { return &Budget{limit: limit} }

// Add registers delta bytes, negative ones when they are freed.
func (b *Budget) Add(delta int64) {
	if b != nil {
		b.used.Add(delta)
	}
}

// Used returns the bytes registered.
func (b *Budget) Used() int64 {
	if b == nil {
		return 0
	}
	return b.used.Load()
}

// Limit returns the limit, 0 when there is none.
func (b *Budget) Limit() int64 {
	if b == nil {
		return 0
	}
	return b.limit
}

// Over reports whether more is in use than the limit.
func (b *Budget) Over() bool { return b != nil && b.limit > 0 && b.used.Load() > b.limit }

// OverBy reports whether more is in use than percent of the limit.
func (b *Budget) OverBy(percent int64) bool {
	return b != nil && b.limit > 0 && b.used.Load() > b.limit*percent/100
}

// Soft reports whether so much is in use that what can be evicted should be.
func (b *Budget) Soft() bool {
	return b != nil && b.limit > 0 && b.used.Load() > b.limit*softPercent/100
}

// fairShare is the part of the limit that one store may hold before it has to give way to others.
func (b *Budget) fairShare() int64 {
	if b == nil || b.limit == 0 {
		return 0
	}
	return b.limit * softPercent / 100 / max(1, b.stores.Load()) / 2
}

// Shared is what all stores of a process share: the block cache and the file cache of their Pebble DBs, and the memory budgets.
type Shared struct {
	// Overlay is the budget of the parts' overlays.
	Overlay *Budget
	// Operators is the budget of the caches that operators keep themselves.
	Operators *Budget

	cache     *pebble.Cache
	fileCache *pebble.FileCache
}

// OpenShared splits memoryBytes, the server's memory flag, among overlays, block cache and operators.
func OpenShared(memoryBytes int64) *Shared {
	return &Shared{
		Overlay:   NewBudget(max(minOverlayBytes, memoryBytes*overlayPercent/100)),
		Operators: NewBudget(max(minOverlayBytes, memoryBytes*operatorsPercent/100)),
		cache:     pebble.NewCache(memoryBytes * cachePercent / 100),
		fileCache: pebble.NewFileCache(fileCacheShards, fileCacheFiles),
	}
}

// CacheMetrics returns how much of the block cache is in use, its limit, both in bytes, and how often blocks were found in it or not, by all stores together.
func (s *Shared) CacheMetrics() (size, limit, hits, misses int64) {
	m := s.cache.Metrics()
	return m.Size, s.cache.MaxSize(), m.Hits, m.Misses
}

// Close gives up the caches. Stores that are still open keep them until they close.
func (s *Shared) Close() {
	s.cache.Unref()
	s.fileCache.Unref()
}
