package main
type sltCmd struct{}
func (*sltCmd) Run(a *app) error { return nil }
type benchCmd struct{}
func (*benchCmd) Run(a *app) error { return nil }
type demoCmd struct{}
func (*demoCmd) Run(a *app) error { return nil }
