// Package spelling measures how much two names differ, so that an error message can propose the name that the user
// probably meant. It imports no other package of this module.
package spelling

// Distance returns the minimum number of inserted, deleted and replaced bytes that change a to b (Levenshtein). Its
// time is the product of the lengths: limit the lengths of texts from a file.
func Distance(a, b string) int {
	row := make([]int, len(b)+1) // row[j] is the distance from a[:i] to b[:j], where i is the number of bytes processed
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			replace := diagonal
			if a[i] != b[j] {
				replace++
			}
			diagonal = row[j+1]
			row[j+1] = min(replace, row[j]+1, diagonal+1)
		}
	}
	return row[len(b)]
}
