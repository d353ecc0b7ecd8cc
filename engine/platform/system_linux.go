package platform

// System is the name of the operating system.
const System = "Linux"
