"""What finished runs look like to a reader: the HTML report and the results page."""
