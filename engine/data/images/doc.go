// Package images reads a folder of class folders that hold JPEG and PNG files, or a tar or tar.gz of one.
//
// Two arrangements are known, with or without one more folder around them:
//
//	CLASS/…/FILE          the part held out for evaluation is chosen: Options.ValFraction of each class
//	train/CLASS/…/FILE    evaluation on val/CLASS/…/FILE, else on test/CLASS/…/FILE, else as above
//
// Classes are the folder names in byte order; samples are ordered by class, then by name, so that a folder and a tar of
// it are the same data set. Files and folders whose names begin with a dot are passed over, as is __MACOSX; other files
// that are not .jpg, .jpeg or .png are counted and logged.
//
// A plain tar is indexed at Open and read at random places. A compressed one is expanded into Options.CacheDir once.
// Archives are never extracted; package archive says what is refused. A folder is read through os.Root: a link that
// leads out of it is an error.
//
// The file's contents decide whether it is JPEG or PNG. Grey images become RGB, transparency is dropped, orientation
// tags are not applied. Images of more than data.FullDecodePixels pixels are decoded at half, a quarter or an eighth of
// their size where no more is needed (JPEG with libturbojpeg).
package images
