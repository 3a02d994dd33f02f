"""What each template gets: final words and lines, nothing left to decide. One module a file of the bundle."""
