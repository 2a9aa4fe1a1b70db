package core
import ("testing";"fmt")
func TestDbg(t *testing.T) {
	w := arrivalWorlds["calls"](*firstSeed, noSabotage); w.chronicle = func(f string, a ...any) { fmt.Println(w.now, fmt.Sprintf(f, a...)) }; w.operators(busy); w.targetsFail(busy); w.live(); w.judgeArrivals()
	fmt.Println(w.broken)
	for _, tk := range w.takeovers { fmt.Println("takeovers", tk) }
	for b, all := range w.arrivals.all { for i, r := range all { if b == "p0/k1" || b=="p0:k1" { fmt.Println(b, i, r.by.core.options.Name, r.from, r.to, r.cost, r.tokens, r.name, r.caller != nil, r.unsent, r.answered) } } ; fmt.Println(b)}
	for _, d := range w.drainers { fmt.Println(d.core.options.Name, d.alive, d.lost, d.frozen) }
}
