// Package show formats values for people and for JSON: durations, sizes, rates, and names that come from files.
//
// Names from files may hold escape sequences and line ends. [Foreign], [Visible] and [Indented] keep these from the terminal.
package show
