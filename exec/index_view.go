package exec

// usable reports that an index of a materialized view has all rows of its view and keeps in step with it. One that does not is not waited for:
// the view is read instead.
func (r *Relation) usable() bool {
	return r.job.Status() == JobRunning && r.job.ErrorCount() == 0 && r.hasVersion()
}

// through returns the newest epoch whose content v is.
func (r *Relation) through(v *Version) uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	if n := len(r.versions); n > 0 && r.versions[n-1] == v {
		return max(r.Closed(), v.Epoch)
	}
	return v.through
}

// Index returns the pinned content of an index of a materialized view, nil when it is not that of the pinned view: of another moment, or gone.
func (p *Pinned) Index(view, index uint64) *Version {
	v, w := p.Versions[view], p.Versions[index]
	if v == nil || w == nil || w.Relation.IndexOf != v.Relation || w.Relation.job.ErrorCount() > 0 {
		return nil
	}
	if max(v.Epoch, w.Epoch) > min(v.Relation.through(v), w.Relation.through(w)) {
		return nil
	}
	return w
}
