package experiment

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/hetero-train/hetero-train/engine/regular"
)

// uploadIDFile contains the ID of the run in the bucket folder to which the run uploads checkpoints. The file moves
// with the run.
const uploadIDFile = "upload_id.txt"

const mostUploadID = 1 << 10 // bytes

// UploadID returns the ID under which the run in the folder dir uploads its checkpoints; "" if it never did.
func UploadID(dir string) (string, error) {
	root, err := os.OpenRoot(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", folderError("open", dir, err)
	}
	defer root.Close() // read only
	text, err := regular.ReadIn(root, filepath.Join(configsFolder, uploadIDFile), mostUploadID)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	return strings.TrimSpace(string(text)), folderError("read", filepath.Join(dir, configsFolder, uploadIDFile), err)
}

// StoreUploadID stores the ID that UploadID returns. The process must have locked the run.
func StoreUploadID(dir, id string) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return folderError("open", dir, err)
	}
	defer root.Close() // its files are closed
	if err := root.MkdirAll(configsFolder, 0o755); err != nil {
		return folderError("create", filepath.Join(dir, configsFolder), err)
	}
	return replaceTextIn(root, dir, filepath.Join(configsFolder, uploadIDFile), []byte(id+"\n"))
}
