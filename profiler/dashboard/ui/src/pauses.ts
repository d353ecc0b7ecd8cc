export const busyPause = 5000 // ms between two attempts while the server refuses
