package version

import (
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/cli"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/exit"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/show"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/version"
	"github.com/hetero-train/hetero-train/cuda"
	"github.com/hetero-train/hetero-train/engine/collective/gloo"
	"github.com/hetero-train/hetero-train/engine/collective/shm"
	"github.com/hetero-train/hetero-train/engine/data/jpeg"
	"github.com/hetero-train/hetero-train/engine/data/webp"
	"github.com/hetero-train/hetero-train/engine/device/cpu"
	"github.com/hetero-train/hetero-train/engine/nativelib"
	"github.com/hetero-train/hetero-train/nccl"
	"github.com/hetero-train/hetero-train/profiler/hardware"
)

// part is a component of the program: a library, a device or a decoder.
type part struct {
	Name      string `json:"name"`
	For       string `json:"for"`
	Available bool   `json:"available"`
	Version   string `json:"version,omitempty"`  // version of the component
	Compiler  string `json:"compiler,omitempty"` // compiler that built the native library
	Path      string `json:"path,omitempty"`     // path of the native library
	Reason    string `json:"reason,omitempty"`   // reason why the component is not available, and the remedy
}

// libraries returns the components of the program on this machine. If the program cannot load any native library, all
// libraries have the same reason.
func libraries() []part {
	list := []part{cpuPart(), libraryPart("shared memory", "ranks of one machine", shm.LibraryName, shm.Available(),
		""),
		libraryPart("gloo", "ranks of several machines", gloo.LibraryName, gloo.Available(), gloo.Version()),
		jpegPart(), webpPart(),
		{Name: "reference device", For: "checking others", Available: true, Version: "plain Go, slow"},
		{Name: "null device", For: "planning and simulation", Available: true, Version: "computes nothing"},
		libraryPart("cuda", "NVIDIA GPUs", cuda.LibraryName, cuda.Available(), cuda.Binding), ncclPart()}
	gpus := hardware.Open()
	defer gpus.Close()
	nvml := part{Name: "nvml", For: "figures of NVIDIA GPUs", Reason: gpus.Reason()}
	if all := gpus.All(); len(all) > 0 {
		nvml.Available, nvml.Version = true, fmt.Sprintf("driver %s, CUDA %s", all[0].Driver, all[0].CUDA)
	}
	list = append(list, nvml)
	if why := nativelib.Loadable(); why != nil {
		for i := range list {
			if strings.Contains(list[i].Reason, why.Error()) {
				list[i].Reason = why.Error()
			}
		}
	}
	return list
}

func reasonedPart(name, purpose string, err error) part {
	p := part{Name: name, For: purpose, Available: err == nil}
	if err != nil {
		p.Reason = strings.TrimPrefix(err.Error(), name+": ")
	}
	return p
}

// ncclPart describes NCCL. Version and path belong to NCCL itself, not to libhetero_nccl.so, which is part of this
// program.
func ncclPart() part {
	version, path, err := nccl.Loaded()
	p := reasonedPart("nccl", "ranks on NVIDIA GPUs", err)
	if err == nil {
		p.Version, p.Path = version.String(), path
		if own, err := nativelib.Find(nccl.LibraryName); err == nil {
			p.Compiler = compilerOf(own)
		}
	}
	return p
}

func cpuPart() part {
	path, inside, err := cpu.Library()
	p := reasonedPart("cpu device", "training on CPUs", err)
	p.Version, p.Path, p.Compiler = inside, path, compilerOf(path)
	return p
}

// libraryPart describes a native library. If the library cannot be used, err is the reason.
func libraryPart(name, purpose, file string, err error, inside string) part {
	p := reasonedPart(name, purpose, err)
	p.Version = inside
	if path, err := nativelib.Find(file); err == nil {
		p.Path, p.Compiler = path, compilerOf(path)
	}
	return p
}

// jpegPart describes the JPEG decoder, which is available even without a library.
func jpegPart() part {
	c := jpeg.InUse()
	return part{Name: "jpeg", For: "decoding images", Available: true, Version: c.Name, Path: c.Path,
		Compiler: compilerOf(c.Path), Reason: c.Reason}
}

// webpPart describes the decoder of WebP. Its library belongs to the system, not to this program.
func webpPart() part {
	c := webp.InUse()
	return part{Name: "webp", For: "decoding WebP images", Available: true, Version: c.Name, Path: c.Path,
		Reason: c.Reason}
}

// compilerOf returns the compiler of the library at path, from its ELF section .comment. It returns "" if the section
// cannot be read.
func compilerOf(path string) string {
	if path == "" {
		return ""
	}
	f, err := elf.Open(path)
	if err != nil {
		return ""
	}
	defer f.Close()
	section := f.Section(".comment")
	if section == nil {
		return ""
	}
	text, err := section.Data()
	if err != nil {
		return ""
	}
	return compilerIn(string(text))
}

// compilerIn returns the first compiler that the comments of an ELF file name. GCC writes comments such as "GCC:
// (Debian 10.2.1-6) 10.2.1 20210110".
func compilerIn(comments string) string {
	first, _, _ := strings.Cut(comments, "\x00")
	maker, rest, ok := strings.Cut(first, ": ")
	if _, numbers, packaged := strings.Cut(rest, ")"); packaged {
		rest = numbers
	}
	if words := strings.Fields(rest); ok && len(words) > 0 {
		return maker + " " + words[0]
	}
	return first
}

const versionLong = `Print release, commit, compiler and platform of the program, then a list of its native libraries and devices.
For each, print its version and the path of its library, or the reason why it is missing.`

// New returns the command that prints versions.
func New() *cobra.Command {
	var asJSON, short bool
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Print the version, and which native libraries and devices are available",
		Long:  versionLong,
		Example: `  hetero-train version
  hetero-train version --short       the same line as hetero-train --version
  hetero-train version --json`,
		Args: cli.NoArguments,
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON object on one line of standard output")
	cmd.Flags().BoolVar(&short, "short", false, "print only release, commit, compiler and platform")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		out := cmd.OutOrStdout()
		if err := webp.CheckVariable(); err != nil && !short {
			return exit.With(exit.Usage, err)
		}
		switch {
		case asJSON:
			return show.JSON(out, struct {
				version.Facts
				Parts []part `json:"parts"`
			}{version.Build(), libraries()})
		case short:
			_, err := fmt.Fprintln(out, version.Text())
			return err
		}
		return writeVersion(out, libraries())
	}
	return cmd
}

// writeVersion prints one line per component, and then the reasons for missing components.
func writeVersion(w io.Writer, list []part) error {
	fmt.Fprintf(w, "%s\n\n", version.Text())
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "part\tstate\tversion\tpath")
	for _, p := range list {
		state := "found"
		if !p.Available {
			state = "missing"
		}
		inside := p.Version
		if p.Compiler != "" {
			inside = strings.TrimPrefix(inside+", "+p.Compiler, ", ")
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\n", p.Name, state, show.OrDash(inside), show.OrDash(p.Path))
	}
	if err := t.Flush(); err != nil {
		return err
	}
	for _, why := range reasonsOf(list) {
		fmt.Fprintf(w, "\n%s: %s\n", strings.Join(why.parts, ", "), why.reason)
	}
	if nativelib.Loadable() != nil {
		return nil // the program does not search any folder
	}
	return libraryFolders(w)
}

// reasonOf contains a reason and the components that are missing for this reason.
type reasonOf struct {
	reason string
	parts  []string // components such as "cpu device (training on CPUs)"
}

// reasonsOf groups the missing components by reason.
func reasonsOf(list []part) (all []reasonOf) {
	for _, p := range list {
		if p.Reason == "" {
			continue
		}
		name := fmt.Sprintf("%s (%s)", p.Name, p.For)
		if at := slices.IndexFunc(all, func(r reasonOf) bool { return r.reason == p.Reason }); at >= 0 {
			all[at].parts = append(all[at].parts, name)
			continue
		}
		all = append(all, reasonOf{p.Reason, []string{name}})
	}
	return all
}

// libraryFolders prints the folders that the program searches for libraries.
func libraryFolders(w io.Writer) error {
	dirs := nativelib.Dirs()
	for i, dir := range dirs {
		if _, err := os.Stat(dir); errors.Is(err, fs.ErrNotExist) {
			dirs[i] += " (missing)"
		}
	}
	_, err := fmt.Fprintf(w, "\nfolders of native libraries: %s\n", strings.Join(dirs, ", "))
	return err
}
