package server

import (
	"github.com/streamdb/streamdb/internal/pgerr"
	"github.com/streamdb/streamdb/sql/expr"
)

// AdvisoryLock implements expr.SessionActions.
func (a *actions) AdvisoryLock(l expr.AdvisoryLock, tx, try bool) (bool, error) {
	if err := a.inSession("an advisory lock"); err != nil {
		return false, err
	}
	return a.ss.srv.locks.advise(a.ctx, a.ss, lockTag{class: l.Class, object: l.Object, two: l.Two}, lockMode(l.Shared), tx, try)
}

// AdvisoryUnlock implements expr.SessionActions.
func (a *actions) AdvisoryUnlock(l expr.AdvisoryLock) (bool, error) {
	if err := a.inSession("an advisory lock"); err != nil {
		return false, err
	}
	mode := lockMode(l.Shared)
	if a.ss.srv.locks.unlock(a.ss, lockTag{class: l.Class, object: l.Object, two: l.Two}, mode) {
		return true, nil
	}
	return false, a.ss.notice("WARNING", pgerr.Warning, "you don't own a lock of type %s", lockWords[mode])
}

// AdvisoryUnlockAll implements expr.SessionActions.
func (a *actions) AdvisoryUnlockAll() error {
	if err := a.inSession("an advisory lock"); err != nil {
		return err
	}
	a.ss.srv.locks.unlockAll(a.ss)
	return nil
}
