package main

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"
)

// The example counts visits, and still knows them after a restart.
func TestExample(t *testing.T) {
	dir := t.TempDir()
	a, err := open(context.Background(), dir)
	require.NoError(t, err)
	h := a.handler()
	for _, p := range []string{"/home", "/home", "/about"} {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/visit?page="+p, nil))
		require.Equal(t, http.StatusNoContent, w.Code, w.Body.String())
	}
	top := func(h http.Handler) []page {
		var out []page
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/top", nil))
		require.Equal(t, http.StatusOK, w.Code, w.Body.String())
		require.NoError(t, json.Unmarshal(w.Body.Bytes(), &out))
		return out
	}
	got := top(h)
	require.Len(t, got, 2)
	require.Equal(t, "/home", got[0].Page)
	require.Equal(t, []int64{2, 1}, []int64{got[0].Visits, got[1].Visits})
	require.NoError(t, a.close())

	a, err = open(context.Background(), dir)
	require.NoError(t, err)
	require.Equal(t, int64(2), top(a.handler())[0].Visits)
	require.NoError(t, a.close())
}
