module github.com/hetero-train/hetero-train

go 1.26.8
