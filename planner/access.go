package planner

import "slices"

// Access is one use of a relation by a statement, and what it takes: the server checks the privileges.
type Access struct {
	Relation *Relation
	// View is the view in whose text the relation is named, 0 for the statement's own: a view reads with its owner's privileges.
	View uint64
	// What is done, and to which stored columns; none means that any column's privilege will do.
	Select, Insert, Update, Delete bool
	Read, Inserted, Updated        []int
}

// origin says that a column id is a column of a relation in use.
type origin struct{ access, column int }

// accesses records the uses of relations while a statement is bound.
type accesses struct {
	list    []*Access
	origins map[int][]origin
	view    uint64
	target  int // the use that is the change itself
	calls   []uint64
}

// call records a call of a user's function.
func (a *accesses) call(f *Function) {
	if !slices.Contains(a.calls, f.ID) {
		a.calls = append(a.calls, f.ID)
	}
}

// use begins the record of one more use.
func (a *accesses) use(rel *Relation) int {
	a.list = append(a.list, &Access{Relation: rel, View: a.view})
	return len(a.list) - 1
}

// column says which column of a use an id stands for.
func (a *accesses) column(access, id, column int) {
	if a.origins == nil {
		a.origins = map[int][]origin{}
	}
	a.origins[id] = append(a.origins[id], origin{access, column})
}

// read records that a column is read.
func (a *accesses) read(id int) {
	for _, o := range a.origins[id] {
		x := a.list[o.access]
		if !slices.Contains(x.Read, o.column) {
			x.Read = append(x.Read, o.column)
		}
		x.Select = true
	}
}

// change records the relation that a statement changes.
func (a *accesses) change(rel *Relation, verb string) {
	a.target = a.use(rel)
	x := a.changed()
	x.Insert, x.Update, x.Delete = verb == "insert into", verb == "update", verb == "delete from"
}

func (a *accesses) changed() *Access { return a.list[a.target] }

// row says that ids, in stored order, are a row of the relation changed.
func (a *accesses) row(ids []int) {
	for i, id := range ids {
		a.column(a.target, id, i)
	}
}

// updates records that a column of the relation changed is assigned to.
func (a *accesses) updates(column int) {
	x := a.changed()
	x.Update = true
	if !slices.Contains(x.Updated, column) {
		x.Updated = append(x.Updated, column)
	}
}

// scanned says that a use is the reading of the relation that is changed: it takes a privilege only when a column is read.
func (a *accesses) scanned(access int) { a.list[access].Select = len(a.list[access].Read) > 0 }

// finish ends the recording: what the optimizer refers to is not the user's doing.
func (a *accesses) finish() []Access {
	a.origins = nil
	out := make([]Access, len(a.list))
	for i, x := range a.list {
		out[i] = *x
	}
	return out
}
