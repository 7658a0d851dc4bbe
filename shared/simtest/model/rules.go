package model

// Rule is a rule of the design that the explorer can leave out.
type Rule int

// The rules marked in the design that one subscription can show.
const (
	// TakeoverRaises: a claim on a lease that was not released raises uncertainty in
	// the claim's own transaction.
	TakeoverRaises Rule = iota
	// UnknownRaises: an unknown outcome of a call raises uncertainty.
	UnknownRaises
	// ZeroRowsRaise: a commit that finds its claim lost raises uncertainty, without
	// the fence.
	ZeroRowsRaise
	// HolderReleases: only the holder of the fence releases a lease; the sweep and
	// superseded claims leave it.
	HolderReleases
	// ClearAfterLate: uncertainty is cleared only by a read after L.
	ClearAfterLate
	// ClearComparesAndSets: … and only if it was not raised again since the read.
	ClearComparesAndSets
	// CommitIsFenced: the guard carries the fence beside the sequence.
	CommitIsFenced
	// SequenceAtClaim: an event below the latest sequence is superseded at its claim.
	SequenceAtClaim
	numRules
)

var ruleNames = [numRules]string{
	"a takeover raises uncertainty in the claim's transaction",
	"an unknown outcome raises uncertainty",
	"zero rows at the commit raise uncertainty",
	"only the holder releases a lease",
	"uncertainty is cleared only after L",
	"uncertainty is cleared by compare-and-set",
	"the commit carries the fence",
	"an older event is superseded at its claim",
}

func (r Rule) String() string { return ruleNames[r] }

// Rules returns every rule.
func Rules() []Rule {
	rules := make([]Rule, numRules)
	for i := range rules {
		rules[i] = Rule(i)
	}
	return rules
}

// design says which rules hold.
type design [numRules]bool

// wholeDesign has every rule.
func wholeDesign() design {
	var d design
	for i := range d {
		d[i] = true
	}
	return d
}

func (d design) without(r Rule) design {
	d[r] = false
	return d
}
