package parts

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"

	"github.com/hetero-train/hetero-train/balancer"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/exit"
	"github.com/hetero-train/hetero-train/engine/config"
	"github.com/hetero-train/hetero-train/engine/data"
	"github.com/hetero-train/hetero-train/engine/models"
)

// Part is a component that a configuration selects by name: a [Model], a [LanguageModel], a [DataSet], a [TokenData] or
// a [Policy]. Built-in components have no abilities that the components that a caller passes to [Main] lack.
type Part interface{ addTo(*config.Catalog) error }

// Model is a network that configurations select with model.name.
type Model struct {
	Name string
	Doc  string // phrase that describes the component in `config docs`
	New  func() ModelOptions
	// Defaults are the defaults of common keys for this model, such as the learning rate.
	Defaults []config.DefaultValue
}

// ModelOptions are the keys of table [model] that only one model has. The program sets the keys and then calls Build.
type ModelOptions interface {
	config.Options
	Build() models.Classifier
}

// DataSet is a data set that configurations select with data.dataset.
type DataSet struct {
	Name   string
	Doc    string // phrase that describes the component in `config docs`
	New    func() DataSetOptions
	Traits config.DataTraits // properties of the data set that rules of other keys use
}

// DataSetOptions are the keys of table [data] that only one data set has. The program sets the keys and then calls Open
// on each rank. Open must report an error in the data as a *[data.Fault]; the program then ends with exit code 3.
type DataSetOptions interface {
	config.Options
	Open(ctx context.Context, cfg *config.Config, log *slog.Logger) (data.Splits, error)
}

// MemoryUser is implemented by the options of data sets of images that fetch or decompress samples before their use, or
// whose images all have the same size. Without the method, the program counts no such memory, and limits the cache of
// decoded images only by [data.DefaultCacheBytes].
type MemoryUser interface {
	ReadMemory(d *config.Data) ReadMemory
}

// ReadMemory describes the memory that reading a data set of images needs.
type ReadMemory struct {
	Side  int   // height and width of every image, in pixels; 0: sizes differ or are unknown
	Ahead int64 // maximum memory per rank of samples that are fetched or decompressed before their use, bytes
}

// builtinImages are the options of a built-in data set of images. The methods are the facts that other code needs, so a
// new data set without one of them does not compile.
type builtinImages interface {
	DataSetOptions
	MemoryUser
	formatted
}

// determined is implemented by the options of data sets whose settings determine every sample. Machines and runs do not
// compare such samples.
type determined interface{ determined() }

// normalized is implemented by the options of data sets whose normalization differs from that of ImageNet. The program
// uses this normalization for checkpoints that do not contain a normalization.
type normalized interface{ normalization() data.Normalization }

// counted is implemented by the options of data sets with a fixed number of classes.
type counted interface{ classes() int }

// KnownClasses returns the number of classes of the configured data set. The result known is false if only the open
// data set can tell this number.
func KnownClasses(cfg *config.Config) (n int, known bool) {
	set, ok := cfg.Data.Options.(counted)
	if !ok {
		return 0, false
	}
	return set.classes(), true
}

// Policy is a balancing policy that configurations select with balance.policy.
type Policy struct {
	Name string
	Doc  string // phrase that describes the component in `config docs`
	New  func() PolicyOptions
}

// PolicyOptions are the keys of table [balance] that only one policy has. The program sets the keys and then calls New
// on each rank. The program checks the [balancer.Options] before the call.
type PolicyOptions interface {
	config.Options
	New(balancer.Options) (balancer.Policy, error)
}

// TraitsOfPolicy is implemented by the options of policies whose [balancer.Traits] are not the zero value.
type TraitsOfPolicy interface{ PolicyTraits() balancer.Traits }

// PolicyTraits returns the traits of the policy with the given options.
func PolicyTraits(o config.Options) (t balancer.Traits) {
	if own, ok := o.(TraitsOfPolicy); ok {
		t = own.PolicyTraits()
	}
	return t
}

// NoKeys is the empty set of options. A component without keys of its own embeds it in its options.
type NoKeys struct{}

// Keys implements [config.Options].
func (NoKeys) Keys() []config.Key { return nil }

func (m Model) addTo(c *config.Catalog) error {
	return addKind(&c.Models, "model", config.Kind{Name: m.Name, Doc: m.Doc, Defaults: m.Defaults}, m.New)
}

func (d DataSet) addTo(c *config.Catalog) error {
	return addKind(&c.DataSets, "data set", config.Kind{Name: d.Name, Doc: d.Doc, Data: d.Traits}, d.New)
}

func (p Policy) addTo(c *config.Catalog) error {
	kind := config.Kind{Name: p.Name, Doc: p.Doc}
	if p.New != nil {
		kind.Learns = PolicyTraits(p.New()).Learns
	}
	return addKind(&c.Policies, "policy", kind, p.New)
}

// addKind adds a component to list. It sets the field Options of kind to a function that calls make.
func addKind[O config.Options](list *[]config.Kind, what string, kind config.Kind, make func() O) error {
	if make == nil {
		return fmt.Errorf("%s %q: New is nil, want a function that returns its options", what, kind.Name)
	}
	kind.Options = func() config.Options { return make() }
	*list = append(*list, kind)
	return nil
}

// CatalogOf returns the catalog of the given components. Each entry creates its options with the function New of its
// component. Therefore, the type assertions in BuildLanguage and similar functions cannot fail.
func CatalogOf(parts []Part) (config.Catalog, error) {
	var c config.Catalog
	var errs []error
	for _, p := range parts {
		errs = append(errs, p.addTo(&c))
	}
	return c, errors.Join(append(errs, c.Check())...)
}

// PolicyMaker returns the constructor of the policy called name. If the configuration selects another policy, the own
// keys of the policy name have their defaults.
func PolicyMaker(catalog config.Catalog, b *config.Balance, name string) (balancer.Maker, error) {
	own := b.Options
	if name != b.Policy {
		own = catalog.PolicyOptions(name)
	}
	options, known := own.(PolicyOptions)
	if !known {
		return balancer.Maker{}, exit.Usagef("got %q, want %s", name, strings.Join(KindNames(catalog.Policies), ", "))
	}
	return balancer.Maker{Name: name, New: options.New, Traits: PolicyTraits(own)}, nil
}

// MakePolicy returns the policy called name.
func MakePolicy(catalog config.Catalog, b *config.Balance, name string, o balancer.Options) (balancer.Policy, error) {
	m, err := PolicyMaker(catalog, b, name)
	if err != nil {
		return nil, err
	}
	return m.Make(o)
}

// formatted is implemented by the options of built-in data sets.
type formatted interface {
	// format describes the files that data.path names. Errors about files of another format contain the text. It is ""
	// if such errors need no advice, or if there are no files.
	format() string
}

// tokenFormat is the format of data sets whose files contain tokens instead of texts.
const tokenFormat = "token files"

// KindNames returns the names of the given models, data sets or policies, in the order of the catalog.
func KindNames(kinds []config.Kind) []string {
	names := make([]string, len(kinds))
	for i, k := range kinds {
		names[i] = k.Name
	}
	return names
}

// BuildClassifier returns the configured image network. An error has the exit code of usage errors.
func BuildClassifier(m *config.Model) (models.Classifier, error) {
	o, ok := m.Options.(ModelOptions)
	if !ok {
		return nil, exit.Usagef("model %s reads %v: this command supports models of images only", m.Name, m.Samples)
	}
	return o.Build(), nil
}
