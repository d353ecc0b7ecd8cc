package analysis

// Sheet contains the tables that Print writes, as texts. The dashboard also shows these tables.
type Sheet struct {
	Runs     []string   `json:"runs"`     // names
	Labels   []string   `json:"labels"`   // labels of the runs in legends
	Results  [][]string `json:"results"`  // rows: a figure, and its value in each run
	Settings [][]string `json:"settings"` // rows: a setting that differs, and its value in each run
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

// Slim removes the points of curves that a Sheet does not need. Call it to save memory if the program keeps many
// trials.
func (t *Trial) Slim() {
	for i := range t.Curves {
		if c := &t.Curves[i]; c.Key != lossCurve && c.Key != evalPrefix+"loss" {
			c.Points = nil
		}
	}
}
