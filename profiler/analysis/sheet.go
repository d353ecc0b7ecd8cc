package analysis

// Sheet has the tables of a comparison as texts: those of Print. The dashboard shows them, so both show the same.
type Sheet struct {
	Runs     []string   `json:"runs"`     // names
	Labels   []string   `json:"labels"`   // of each run, for legends
	Results  [][]string `json:"results"`  // a figure, and its value of each run
	Settings [][]string `json:"settings"` // a setting that differs, and its value of each run
	Notes    []string   `json:"notes"`
}

// Sheet returns the tables of the comparison.
func (s *SideBySide) Sheet() Sheet {
	sheet := Sheet{
		Results: append([][]string{}, s.rows()...), Settings: append([][]string{}, s.settingRows()...),
		Notes: append([]string{}, s.Notes...),
	}
	for i, t := range s.Trials {
		sheet.Runs, sheet.Labels = append(sheet.Runs, t.Name), append(sheet.Labels, s.Label(i))
	}
	return sheet
}

// Slim removes the points of a curve that a Sheet does not need. A program that keeps many trials calls it.
func (t *Trial) Slim() {
	for i := range t.Curves {
		if c := &t.Curves[i]; c.Key != lossCurve && c.Key != evalPrefix+"loss" {
			c.Points = nil
		}
	}
}
